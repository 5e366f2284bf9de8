"""Scores of problems that were answered several times.

Shapes: P problems, R repeats (samples per problem). `outcomes` is [P, R] with 0 (wrong) or 1 (right).
The problem is the sampling unit of every standard error: repeats of one problem are not independent.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray


def _outcomes(outcomes: ArrayLike) -> NDArray[np.float64]:
    array = np.asarray(outcomes, dtype=np.float64)
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"outcomes must be [problems, repeats] and not empty, got shape {array.shape}")
    if not np.isin(array, (0.0, 1.0)).all():
        raise ValueError("outcomes must be 0 or 1")
    return array


def pass_at_k(n: int, c: int, k: int) -> float:
    """Chance that k of n samples, drawn without replacement, hold one of the c right ones.

    pass@k = 1 - C(n-c, k) / C(n, k), the unbiased estimator of Chen et al. 2021 (2107.03374), Eq. 1.
    Raises ValueError unless 0 <= c <= n and 1 <= k <= n.
    """
    if not (0 <= c <= n and 1 <= k <= n):
        raise ValueError(f"pass@k needs 0 <= c <= n and 1 <= k <= n, got n={n}, c={c}, k={k}")
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def majority(answers: Sequence[str | None]) -> str | None:
    """The answer given more often than any other; None for a tie or where nobody answered.

    None entries are samples without an answer: they do not vote. Position never decides.
    """
    counts = Counter(answer for answer in answers if answer is not None).most_common(2)
    if not counts or (len(counts) == 2 and counts[0][1] == counts[1][1]):
        return None
    return counts[0][0]


def candidates(outcomes: Sequence[int], answers: Sequence[str | None]) -> list[str | None]:
    """What each of a problem's R samples votes for: its answer, and one candidate for all answers graded right.

    Answers graded right all equal the truth, however they are written (0.5, 1/2), so they are one candidate. Wrong
    answers are compared as texts: a task that wants wrong ones counted together hands over a canonical form.
    """
    right = next((answer for answer, one in zip(answers, outcomes, strict=True) if one and answer is not None), None)
    return [right if one and answer is not None else answer for answer, one in zip(answers, outcomes, strict=True)]


def avg_at_k(outcomes: ArrayLike) -> float:
    """avg@R: mean over problems of the share of right samples."""
    return float(_outcomes(outcomes).mean())


def pass_at_k_per_problem(outcomes: ArrayLike, k: int) -> list[float]:
    """[P] closed-form pass@k of each problem."""
    array = _outcomes(outcomes)
    return [pass_at_k(array.shape[1], int(right), k) for right in array.sum(axis=1)]


def maj_at_k(answers: Sequence[Sequence[str | None]], truths: Sequence[str]) -> float:
    """maj@R: share of problems whose majority answer equals the truth (a tie counts as wrong).

    For canonical answers: equal ones are equal texts. `candidates` makes them so where a grader knows more.
    """
    if len(answers) != len(truths) or not truths:
        raise ValueError(f"maj@k needs as many truths as problems, got {len(truths)} and {len(answers)}")
    return float(np.mean([majority(row) == truth for row, truth in zip(answers, truths, strict=True)]))


def standard_error(values: ArrayLike) -> float:
    """Standard error of the mean of one value per problem: sd with n-1, over sqrt(n); nan for n < 2."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"one value per problem expected, got shape {array.shape}")
    return float(array.std(ddof=1) / math.sqrt(array.size)) if array.size > 1 else math.nan


def stderr_avg_at_k(outcomes: ArrayLike) -> float:
    """Standard error of avg@R with problems as clusters: the spread of the per-problem means."""
    return standard_error(_outcomes(outcomes).mean(axis=1))


def std_between_runs(outcomes: ArrayLike) -> float:
    """Population sd of the R run means (run j = sample j of every problem): what people report as std of avg@R."""
    return float(_outcomes(outcomes).mean(axis=0).std())


def std_per_problem(outcomes: ArrayLike) -> float:
    """Mean over problems of the population sd over repeats; far larger than `std_between_runs`."""
    return float(_outcomes(outcomes).std(axis=1).mean())


def group_mean(
    means: Sequence[float], stderrs: Sequence[float], sizes: Sequence[int], *, weight_by_size: bool
) -> tuple[float, float]:
    """Mean over benchmarks and the standard error of that same mean.

    Weighted by size it is the mean of the pooled items, so its error is the pooled one (within-benchmark
    variances, n-1 each); unweighted it is the mean of independent means. Sizes must be at least 2.
    """
    if not (len(means) == len(stderrs) == len(sizes) > 0) or min(sizes) < 2:
        raise ValueError(f"one mean, stderr and size >= 2 per benchmark expected, got sizes {list(sizes)}")
    m, s, n = (np.asarray(x, dtype=np.float64) for x in (means, stderrs, sizes))
    if not weight_by_size:
        return float(m.mean()), float(np.sqrt((s**2).sum()) / len(m))
    pooled_variance = ((n - 1) * s**2 * n).sum() / (n.sum() - len(n))
    return float((m * n).sum() / n.sum()), float(np.sqrt(pooled_variance / n.sum()))
