"""Intervals over seeds. The seed (one trained run) is the unit: never problems, samples or tokens.

What is shown depends on the number n of seeds:
* 1 or 2: the values themselves and no interval; an interval from two values would exclude 0 half of the time;
* 3 to 9: Student's t interval. Coverage of a nominal 95 %, simulated: 0.95 on normal data for every n; on exponential
  data 0.89 (n = 3) to 0.91 (10), and about 0.7 to 0.9 where a tenth of the runs collapse, since no interval of a mean
  knows of a rare collapse that the seeds at hand do not show;
* from 10 on: the same, with a bootstrap as a check; a note says where the two disagree about 0.
Rates (k of n seeds) have the exact interval, `clopper_pearson`.

Three bootstrap intervals for the mean of n values, each from B resamples of the n, can be asked for by name:
* "percentile": quantiles a/2 and 1 - a/2 of the resampled means;
* "expanded" (the check): the same with a'/2 = Phi(-sqrt(n / (n-1)) t_{1 - a/2, n-1}), the expanded percentile
  interval of Hesterberg 2015 (The American Statistician 69, 371-386). With few seeds the plain one is too narrow: the
  bootstrap variance lacks the factor n / (n-1) and its tails are normal ones;
* "bca": bias-corrected and accelerated, Efron 1987, acceleration from the jackknife.
No bootstrap can be wider than its data. Coverage on normal data (tests/eval/test_statistics.py repeats n = 6):
n = 2, 3, 6, 12, 20: expanded 0.48 0.75 0.92 0.93 0.95, percentile 0.48 0.75 0.86 0.89 0.93, bca 0.48 0.73 0.85 0.90
0.93.

Several strata (settings or methods whose runs are other runs): `stratified_mean`, for a weighted sum of their means.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Bootstrap = Literal["expanded", "percentile", "bca"]
Method = Literal["t", "expanded", "percentile", "bca"]
BOOTSTRAPS: tuple[Bootstrap, ...] = ("expanded", "percentile", "bca")
METHODS: tuple[Method, ...] = ("t", *BOOTSTRAPS)
RESAMPLES = 10_000
# Below, values and no interval; from CHECKED on, a bootstrap beside the t interval.
FEWEST, CHECKED = 3, 10


@dataclass(frozen=True)
class Interval:
    """A mean over n seeds and its interval; `note` says why an interval is nan, else it is empty or a warning.

    values: of the seeds, in the order given, where they are too few for an interval.
    """

    mean: float
    low: float
    high: float
    n: int
    level: float
    method: str
    note: str = ""
    values: tuple[float, ...] = ()


def not_a_test(n: int) -> str:
    """What stands in place of an interval of so few seeds."""
    return "no seed" if n == 0 else f"{n} seed{'s' if n > 1 else ''}: not a test"


def t_limits(mean: float, standard_error: float, degrees: float, level: float = 0.95) -> tuple[float, float]:
    """mean -+ t · standard error. The error may be of one group, of strata, or of a variance pooled over several."""
    half = float(stats.t.ppf((1.0 + level) / 2.0, degrees)) * standard_error
    return mean - half, mean + half


def mean_interval(
    values: Sequence[float],
    generator: np.random.Generator,
    *,
    level: float = 0.95,
    method: Method = "t",
    resamples: int = RESAMPLES,
) -> Interval:
    """Mean of one value per seed with its interval, as the module says; nan limits and a note below `FEWEST` seeds.

    generator: of the bootstrap that checks, or that `method` names. Raises ValueError for a value that is not finite,
    an unknown method, or a level outside (0, 1).
    """
    if method not in METHODS:
        raise ValueError(f"unknown interval method {method!r}; known: {', '.join(METHODS)}")
    array = _check(values, level, resamples)
    n = array.size
    mean = float(array.mean()) if n else math.nan
    if n < FEWEST:
        return Interval(mean, math.nan, math.nan, n, level, method, not_a_test(n), tuple(map(float, array)))
    if method != "t":
        return Interval(mean, *_bootstrap(array, generator, level, method, resamples), n, level, method)
    low, high = t_limits(mean, float(array.std(ddof=1)) / math.sqrt(n), n - 1, level)
    note = ""
    if n >= CHECKED:
        other = _bootstrap(array, generator, level, "expanded", resamples)
        if (low <= 0.0 <= high) != (other[0] <= 0.0 <= other[1]):
            note = f"t and bootstrap disagree about 0: bootstrap [{other[0]:.3g}, {other[1]:.3g}]"
    return Interval(mean, low, high, n, level, method, note)


def _bootstrap(
    array: NDArray[np.float64], generator: np.random.Generator, level: float, method: Bootstrap, resamples: int
) -> tuple[float, float]:
    """Limits for the mean of [n] values from resampled means."""
    n = array.size
    means = array[generator.integers(n, size=(resamples, n))].mean(axis=1)
    tails = np.array([(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    if method == "expanded":
        tails = stats.norm.cdf(math.sqrt(n / (n - 1)) * stats.t.ppf(tails, n - 1))
    elif method == "bca":
        tails = _bca_tails(array, means, tails)
    low, high = np.quantile(means, tails)
    return float(low), float(high)


def stratified_mean(
    strata: Mapping[str, Sequence[float]], *, weights: Mapping[str, float] | None = None, level: float = 0.95
) -> Interval:
    """Sum of w_s times the mean of stratum s, with Welch's t interval: each stratum has a variance of its own.

    strata: one value per seed of each; they must be independent of each other: where strata share seeds, a difference
    is a mean of paired differences (`paired_difference`). weights: by default 1/S each, the mean over strata; {a: 1,
    b: -1} is a difference. n counts the seeds of all strata; a stratum below `FEWEST` seeds gives nan limits and a
    note. Raises ValueError as `mean_interval` does, and for no strata, other names in `weights` or a weight that is 0
    or not finite.

    With n_s seeds, unbiased variance s2_s and v_s = w_s^2 s2_s / n_s, the standard error is sqrt(sum v_s) and
    nu = (sum v_s)^2 / sum v_s^2 / (n_s - 1) (Welch 1947). One stratum, or S equal ones, give back t with n - 1 or
    S (n - 1) degrees.
    """
    if not strata:
        raise ValueError("at least one stratum expected, got none")
    chosen = dict.fromkeys(strata, 1.0 / len(strata)) if weights is None else dict(weights)
    if chosen.keys() != strata.keys() or not all(math.isfinite(w) and w for w in chosen.values()):
        raise ValueError(f"a weight other than 0 for each of {list(strata)} expected, got {chosen}")
    arrays = {name: _check(values, level, 1) for name, values in strata.items()}
    n = sum(array.size for array in arrays.values())
    mean = float(sum(chosen[name] * (array.mean() if array.size else math.nan) for name, array in arrays.items()))
    if few := [f"{not_a_test(array.size)} in {name}" for name, array in arrays.items() if array.size < FEWEST]:
        return Interval(mean, math.nan, math.nan, n, level, "t", "; ".join(few))
    variances = np.array([chosen[name] ** 2 * array.var(ddof=1) / array.size for name, array in arrays.items()])
    total = float(variances.sum())
    if total == 0.0:
        return Interval(mean, mean, mean, n, level, "t")
    sizes = np.array([array.size for array in arrays.values()], dtype=np.float64)
    degrees = total**2 / float((variances**2 / (sizes - 1)).sum())
    return Interval(mean, *t_limits(mean, math.sqrt(total), degrees, level), n, level, "t")


def pooled_difference(counts: Sequence[tuple[int, int, int, int]], level: float = 0.95) -> Interval:
    """sum(part) / sum(whole) of one side minus that of the other, with the jackknife's t interval over seeds.

    counts: a row (part, whole, other part, other whole) per seed. nan where a side has nothing in all seeds or without
    one of them, and below `FEWEST` seeds.
    """
    rows = np.asarray(counts, dtype=np.float64).reshape(-1, 4)
    n = len(rows)

    def difference(sums: NDArray[np.float64]) -> NDArray[np.float64]:
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(sums[..., 0] / sums[..., 1] - sums[..., 2] / sums[..., 3])

    value = float(difference(rows.sum(axis=0)))
    if n < FEWEST:
        return Interval(value, math.nan, math.nan, n, level, "jackknife t", not_a_test(n))
    without = difference(rows.sum(axis=0) - rows)
    error = math.sqrt((n - 1) / n * float(((without - without.mean()) ** 2).sum()))
    return Interval(value, *t_limits(value, error, n - 1, level), n, level, "jackknife t")


def clopper_pearson(part: int, whole: int, level: float = 0.95) -> tuple[float, float]:
    """Exact interval for a rate of `part` in `whole` (Clopper and Pearson 1934); nan for a rate of nothing."""
    if not 0 <= part <= whole:
        raise ValueError(f"a rate needs 0 <= part <= whole, got {part} of {whole}")
    if whole == 0:
        return math.nan, math.nan
    tail = (1.0 - level) / 2.0
    low = float(stats.beta.ppf(tail, part, whole - part + 1)) if part else 0.0
    high = float(stats.beta.ppf(1.0 - tail, part + 1, whole - part)) if part < whole else 1.0
    return low, high


def _check(values: Sequence[float], level: float, resamples: int) -> NDArray[np.float64]:
    """The values as an array. Raises ValueError as the callers say."""
    array = np.asarray(values, dtype=np.float64)
    if not 0.0 < level < 1.0 or resamples < 1:
        raise ValueError(f"level must lie in (0, 1) and resamples be positive, got {level} and {resamples}")
    if array.ndim != 1 or not np.isfinite(array).all():
        raise ValueError(f"one finite value per seed expected, got {list(values)}")
    return array


def _bca_tails(
    values: NDArray[np.float64], means: NDArray[np.float64], tails: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Quantile levels corrected for bias z0 and acceleration a; equal values leave them unchanged."""
    centred = values - values.mean()
    spread = float((centred**2).sum())
    if spread == 0.0:
        return tails
    acceleration = float((centred**3).sum()) / (6.0 * spread**1.5)
    # Ties with the estimate count half, so that a symmetric sample has no bias.
    below = float((means < values.mean()).mean() + (means == values.mean()).mean() / 2.0)
    bias = float(stats.norm.ppf(np.clip(below, 1.0 / (means.size + 1), means.size / (means.size + 1))))
    shifted = bias + stats.norm.ppf(tails)
    return np.asarray(stats.norm.cdf(bias + shifted / (1.0 - acceleration * shifted)))


@dataclass(frozen=True)
class Paired:
    """Difference a - b over the seeds that both have; `wins` counts those in which a is larger."""

    difference: Interval
    seeds: tuple[int, ...]
    wins: int


def paired_difference(
    a: Mapping[int, float],
    b: Mapping[int, float],
    generator: np.random.Generator,
    *,
    level: float = 0.95,
    method: Method = "t",
    resamples: int = RESAMPLES,
) -> Paired:
    """Mean of a[seed] - b[seed] over the common seeds, with its interval.

    Seeds that only one side has are left out, and the note says how many: a mean over other seeds is another mean.
    """
    seeds = tuple(sorted(a.keys() & b.keys()))
    differences = [a[seed] - b[seed] for seed in seeds]
    interval = mean_interval(differences, generator, level=level, method=method, resamples=resamples)
    unpaired = len(a.keys() ^ b.keys())
    if unpaired:
        note = "; ".join(filter(None, [interval.note, f"{unpaired} seed(s) without a partner left out"]))
        interval = replace(interval, note=note)
    return Paired(interval, seeds, sum(difference > 0 for difference in differences))
