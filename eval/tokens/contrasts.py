"""One value per seed and what follows for its mean: differences paired where seeds are shared, else stratified.

Seeds are the unit. Intervals are 95 % ones for one contrast each, not corrected for how many a table has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from eval.statistics import Interval, mean_interval, stratified_mean

Values = Mapping[int, float]  # of one setting, by seed; seeds without a value are absent


# Below it nothing is concluded from rates of this study: a seed's counts are small and far from normal.
FEW = 6


@dataclass(frozen=True)
class Estimate:
    """A mean with its interval.

    levels: the means of the two sides of a difference. resampled: what the interval is over; sizes: how many of it, per
    stratum.
    """

    interval: Interval
    levels: tuple[float, ...]
    resampled: str
    sizes: tuple[int, ...]


def single(values: Values) -> Estimate:
    """The mean of one value per seed."""
    return Estimate(mean_interval(_sort_by_seed(values), _generator()), (), "seeds", (len(values),))


def difference(a: Values, b: Values) -> Estimate:
    """a - b: over the seeds that both have; settings without a common seed are strata of their own."""
    shared = sorted(a.keys() & b.keys())
    if shared:
        interval = mean_interval([a[seed] - b[seed] for seed in shared], _generator())
        levels = tuple(float(np.mean([side[seed] for seed in shared])) for side in (a, b))
        return Estimate(interval, levels, "paired seeds", (len(shared),))
    strata = {"a": _sort_by_seed(a), "b": _sort_by_seed(b)}
    interval = stratified_mean(strata, weights={"a": 1.0, "b": -1.0})
    levels = tuple(float(np.mean(side)) if side else float("nan") for side in strata.values())
    return Estimate(interval, levels, "seeds of either side", (len(a), len(b)))


def pool(groups: Mapping[str, Values]) -> Estimate:
    """The mean over settings, each of the same weight.

    Runs of one seed resemble each other whatever the setting, so shared seeds count as one: the mean over settings is
    taken per seed. Settings without a common seed are strata.
    """
    shared = sorted(set.intersection(*(set(values) for values in groups.values())))
    if shared:
        means = [float(np.mean([values[seed] for values in groups.values()])) for seed in shared]
        return Estimate(mean_interval(means, _generator()), (), "seeds, means over settings", (len(shared),))
    strata = {name: _sort_by_seed(values) for name, values in groups.items()}
    sizes = tuple(map(len, strata.values()))
    return Estimate(stratified_mean(strata), (), "seeds inside each setting", sizes)


def _sort_by_seed(values: Values) -> list[float]:
    """In the order of the seeds, whatever that of the rows: the bootstrap that checks draws by place."""
    return [values[seed] for seed in sorted(values)]


def _generator() -> np.random.Generator:
    """The same for every contrast: a table does not depend on the order of its rows."""
    return np.random.default_rng(0)
