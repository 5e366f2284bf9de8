"""An estimate of a claim with its interval, and the p values of its sides. The paired seed is the unit.

Of S settings the estimate is the mean of their S means, with equal weights. A claim compares the same variants in
all its settings, so their spreads belong to one class (masks, or methods without a bound) and their variance is pooled:
s^2 = sum (n_j - 1) s_j^2 / (N - S), standard error s sqrt(sum 1 / n_j) / S, N - S degrees. Where Brown and Forsythe's
test (1974) finds the spreads unequal at 0.05, each setting keeps its own variance (`stratified_mean`, Welch). Pooling
stops at the claim's settings: a run elsewhere changes no number here.

A claim needs FEWEST seeds in each setting; below, the values stand in the note and no interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special, stats

from eval.statistics import CHECKED, FEWEST, clopper_pearson, mean_interval, stratified_mean, t_limits
from eval.tokens.significance import seeds_needed

UNEQUAL = 0.05
Counts = tuple[int, int, int, int]


@dataclass(frozen=True)
class Estimate:
    """low, high: 95 %. error, degrees: of the mean's t distribution; nan where there is no interval, as `note` says.

    sd: of one seed's value; counts: (part, whole, other part, other whole) of a rate and of what it is set beside.
    """

    value: float
    low: float = math.nan
    high: float = math.nan
    error: float = math.nan
    degrees: float = math.nan
    n: int = 0
    sd: float = math.nan
    kind: str = "none"
    note: str = ""
    counts: Counts | None = None
    settings: int = 1

    @property
    def testable(self) -> bool:
        return self.counts is not None or (self.error > 0.0 and self.degrees > 0.0)


def nothing(reason: str, n: int = 0) -> Estimate:
    """No estimate, for that reason."""
    return Estimate(math.nan, n=n, note=reason)


def mean_of_settings(
    groups: Mapping[str, Sequence[float]], generator: np.random.Generator | None = None, fewest: int = FEWEST
) -> Estimate:
    """From {setting: one value per seed}. generator: of the bootstrap that checks one setting of many seeds.

    Without an interval where a setting has fewer than `fewest` seeds, a value is not finite, or all are equal.
    """
    arrays = {name: np.asarray(values, dtype=np.float64) for name, values in groups.items()}
    n = sum(array.size for array in arrays.values())
    if not n or not all(np.isfinite(array).all() for array in arrays.values()):
        return nothing("no seed" if not n else "a seed's value is not finite", n)
    if few := [f"{array.size} in {name}" for name, array in arrays.items() if array.size < fewest]:
        value = float(np.mean([array.mean() for array in arrays.values() if array.size]))
        values = ", ".join(f"{value:.4g}" for array in arrays.values() for value in array[:2])
        shown = f": {values}" if n <= 2 else ""
        return Estimate(value, n=n, note=f"fewer than {fewest} seeds ({', '.join(few)}){shown}", kind="values")
    value, sizes = float(np.mean([array.mean() for array in arrays.values()])), [a.size for a in arrays.values()]
    degrees = float(n - len(arrays))
    squares = sum(float(((array - array.mean()) ** 2).sum()) for array in arrays.values())
    sd = math.sqrt(squares / degrees)
    # Rounding leaves a spread of the last bits where all are equal.
    if sd <= 1e-12 * max(1.0, abs(value)):
        return Estimate(value, n=n, kind="values", note="all seeds have the same value: no scatter to test against")
    kind, note = "t", ""
    if len(arrays) > 1:
        kind, p = "t, pooled variance", brown_forsythe(list(arrays.values()))
        note = f"Brown-Forsythe p = {p:.2g}"
        if p < UNEQUAL:
            own = stratified_mean(arrays)  # type: ignore[arg-type]
            weights = np.array([array.var(ddof=1) / array.size for array in arrays.values()])
            freedom = float(weights.sum() ** 2 / (weights**2 / (np.array(sizes) - 1)).sum())
            error = math.sqrt(float(weights.sum())) / len(arrays)
            return Estimate(
                value, own.low, own.high, error, freedom, n, sd, "t, own variances", note, settings=len(arrays)
            )
    elif n >= CHECKED and generator is not None:
        note = mean_interval(next(iter(arrays.values())), generator).note  # type: ignore[arg-type]
    error = sd * math.sqrt(sum(1.0 / size for size in sizes)) / len(arrays)
    low, high = t_limits(value, error, degrees)
    return Estimate(value, low, high, error, degrees, n, sd, kind, note, settings=len(arrays))


def from_table(value: float, low: float, high: float, n: int, fewest: int) -> Estimate:
    """Of a table's mean over n seeds and its 95 % t interval; a bootstrap's, which lies uneven, is refused."""
    if n < fewest or not all(map(math.isfinite, (value, low, high))):
        return Estimate(value, n=n, note=f"{n} seeds with a value: fewer than {fewest}", kind="values")
    half = (high - low) / 2.0
    if half <= 0.0:
        return Estimate(value, n=n, note="all seeds have the same value: no scatter to test against", kind="values")
    if abs((high + low) / 2.0 - value) > 1e-3 * half:
        return Estimate(value, n=n, note="the table's interval is no t interval: remake it", kind="none")
    error = half / float(stats.t.ppf(0.975, n - 1))
    return Estimate(value, low, high, error, n - 1.0, n, error * math.sqrt(n), "t")


def rate(counts: Counts, fewest: int) -> Estimate:
    """Rate part / whole with its exact interval, beside that of the other variant."""
    part, whole, other, others = counts
    low, high = clopper_pearson(part, whole)
    note = f"{part} of {whole}, the other variant {other} of {others}"
    if min(whole, others) < fewest:
        return Estimate(part / whole if whole else math.nan, n=whole, note=f"{note}: fewer than {fewest} seeds")
    if part == other == 0:
        return Estimate(0.0, n=whole, note=f"{note}: the phenomenon is absent")
    return Estimate(part / whole, low, high, n=whole, kind="exact (Clopper-Pearson)", note=note, counts=counts)


def brown_forsythe(groups: Sequence[np.ndarray]) -> float:
    """p that groups have one spread (Levene's test about the median); 1 where no group has any."""
    p = float(stats.levene(*groups, center="median").pvalue)
    return 1.0 if math.isnan(p) else p


def above(estimate: Estimate, bound: float) -> float:
    """One-sided p for "the true value lies above the bound"; its complement is that for below."""
    return float(special.stdtr(estimate.degrees, -(estimate.value - bound) / estimate.error))


def within(estimate: Estimate, low: float, high: float) -> float:
    """p for "it lies between": the larger of two one-sided tests (Schuirmann 1987)."""
    return max(above(estimate, low), 1.0 - above(estimate, high))


def outside(estimate: Estimate, low: float, high: float) -> float:
    """p for "it lies below the low bound or above the high one": the smaller of two one-sided tests."""
    return min(1.0 - above(estimate, low), above(estimate, high))


def rate_above(counts: Counts) -> float:
    """One-sided exact p (Fisher) that the first rate is the larger."""
    part, whole, other, others = counts
    return float(stats.hypergeom.sf(part - 1, whole + others, part + other, whole))


def seeds_for(estimate: Estimate, margin: float) -> str:
    """Seeds in each setting that would tell an effect of the margin, from the upper 80 % bound of sd.

    sd from few seeds is itself a guess: with n = 3 it is too small by half or more in one case of five.
    """
    degrees = max(1.0, estimate.degrees)
    upper = estimate.sd * math.sqrt(degrees / float(stats.chi2.ppf(0.2, degrees)))
    try:
        # A mean over settings has its variance divided by their number.
        needed = max(FEWEST, seeds_needed(upper / math.sqrt(estimate.settings), margin))
    except ValueError:
        return f"more than a million seeds would tell an effect of {margin:.3g}"
    return f"{needed} seeds{' in each setting' if estimate.settings > 1 else ''} would tell an effect of {margin:.3g}"
