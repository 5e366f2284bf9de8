"""Tests and power for paired per-seed differences; the seed is the unit, never the token.

sign_test and flip_test take one difference per seed; relabel_test permutes, inside each seed, which of the tokens in Q
belong to which keep set, so that only what a criterion says is random.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

MOST_SEEDS = 1 << 20
# Here the power is 1 to the last bit for any n; scipy's noncentral t is nan far beyond.
CERTAIN_SHIFT = 1e4


def sign_test(differences: Sequence[float]) -> float:
    """Two-sided exact p of the number of negative differences among the nonzero ones; nan without any."""
    signs = [d for d in differences if d != 0]
    if not signs:
        return math.nan
    return float(stats.binomtest(sum(d < 0 for d in signs), len(signs), 0.5).pvalue)


def flip_test(differences: Sequence[float], generator: np.random.Generator, resamples: int = 10_000) -> float:
    """Two-sided p of the mean under random signs of the differences (exact up to 13 seeds); nan without any."""
    values = np.asarray(differences, dtype=np.float64)
    if not values.size:
        return math.nan
    if values.size <= 13:
        bits = (np.arange(2**values.size)[:, None] >> np.arange(values.size)) & 1
        means = np.abs((np.where(bits, 1.0, -1.0) * values).mean(axis=1))
        return float(np.mean(means >= abs(values.mean()) - 1e-12))
    flips = generator.choice([-1.0, 1.0], size=(resamples, values.size))
    means = np.abs((flips * values).mean(axis=1))
    # The observed labelling is one of the possible ones.
    return float((1 + np.sum(means >= abs(values.mean()) - 1e-12)) / (1 + resamples))


def relabel_test(
    counts: Sequence[tuple[int, int, int, int]], generator: np.random.Generator, resamples: int = 10_000
) -> float:
    """Two-sided p of the mean per-seed gap when keep labels are exchanged inside each seed.

    counts: a row (kept, kept_ratio, unsafe, unsafe_ratio) per seed; one where either keeps nothing is left out.
    """
    rows = np.asarray([row for row in counts if row[0] and row[1]], dtype=np.int64)
    if not rows.size:
        return math.nan
    kept, kept_ratio, unsafe, unsafe_ratio = rows.T
    observed = np.mean(unsafe / kept - unsafe_ratio / kept_ratio)
    total = unsafe + unsafe_ratio
    # Of the unsafe tokens of a seed, the number that fall into the first of two groups is hypergeometric.
    drawn = generator.hypergeometric(kept, kept_ratio, total, size=(resamples, len(rows)))
    gaps = np.mean(drawn / kept - (total - drawn) / kept_ratio, axis=1)
    centred = np.abs(gaps - gaps.mean())
    return float((1 + np.sum(centred >= abs(observed - gaps.mean()) - 1e-12)) / (1 + resamples))


def seeds_needed(sd: float, gap: float, power: float = 0.8, level: float = 0.95) -> int:
    """Seeds for a paired t-test to find `gap` with that power, the differences having that standard deviation.

    Raises ValueError unless sd, gap and the two probabilities are positive (and the latter below 1).
    """
    if not (sd > 0 and gap != 0 and 0 < power < 1 and 0 < level < 1):
        raise ValueError(f"sd = {sd}, gap = {gap}, power = {power}, level = {level}: positive, the last two below 1")
    # The power grows with n: double until it is enough, then halve the step.
    low, high = 1, 2
    while power_of(high, sd, gap, level) < power:
        low, high = high, 2 * high
        if high > MOST_SEEDS:
            raise ValueError(f"more than a million seeds for gap = {gap} at sd = {sd}")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power_of(middle, sd, gap, level) >= power else (middle, high)
    return high


def power_of(n: int, sd: float, gap: float, level: float = 0.95) -> float:
    """Power of the two-sided paired t-test with n seeds (noncentral t)."""
    limit = stats.t.ppf((1 + level) / 2, n - 1)
    shift = abs(gap) / sd * math.sqrt(n)
    if shift > CERTAIN_SHIFT:
        return 1.0
    # The far tail is nan where it underflows.
    return float(stats.nct.sf(limit, n - 1, shift) + np.nan_to_num(stats.nct.cdf(-limit, n - 1, shift)))


def smallest_gap(n: int, sd: float, power: float = 0.8, level: float = 0.95) -> float:
    """The gap that n seeds find with that power."""
    low, high = 0.0, sd
    # With two seeds it is above ten standard deviations.
    while power_of(n, sd, high, level) < power:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if power_of(n, sd, middle, level) >= power else (middle, high)
    return high
