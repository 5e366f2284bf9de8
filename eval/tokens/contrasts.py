"""One value per seed and what follows for its mean: differences paired where seeds are shared, else stratified.

Seeds are the unit. Intervals are 95 % ones for one contrast each, not corrected for how many a table has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from eval.statistics import Interval, bootstrap_mean, stratified_bootstrap

Values = Mapping[int, float]  # of one setting, by seed; seeds without a value are absent


@dataclass(frozen=True)
class Estimate:
    """A mean with its interval; `levels` are the means of the two sides of a difference, `resampled` what was drawn."""

    interval: Interval
    levels: tuple[float, ...]
    resampled: str


def single(values: Values) -> Estimate:
    """The mean of one value per seed."""
    return Estimate(bootstrap_mean(list(values.values()), _generator()), (), "seeds")


def difference(a: Values, b: Values) -> Estimate:
    """a - b: over the seeds that both have; settings without a common seed are strata of their own."""
    shared = sorted(a.keys() & b.keys())
    if shared:
        interval = bootstrap_mean([a[seed] - b[seed] for seed in shared], _generator())
        levels = tuple(float(np.mean([side[seed] for seed in shared])) for side in (a, b))
        return Estimate(interval, levels, "paired seeds")
    strata = {"a": list(a.values()), "b": list(b.values())}
    interval = stratified_bootstrap(strata, _generator(), weights={"a": 1.0, "b": -1.0})
    levels = tuple(float(np.mean(side)) if side else float("nan") for side in strata.values())
    return Estimate(interval, levels, "seeds of either side")


def pooled(settings: Mapping[str, Values]) -> Estimate:
    """The mean over settings, each of the same weight.

    Runs of one seed resemble each other whatever the setting, so shared seeds are resampled as one: the mean over
    settings is taken per seed. Settings without a common seed are strata.
    """
    shared = sorted(set.intersection(*(set(values) for values in settings.values())))
    if shared:
        means = [float(np.mean([values[seed] for values in settings.values()])) for seed in shared]
        return Estimate(bootstrap_mean(means, _generator()), (), "seeds, means over panels")
    strata = {name: list(values.values()) for name, values in settings.items()}
    return Estimate(stratified_bootstrap(strata, _generator()), (), "seeds inside each panel")


def _generator() -> np.random.Generator:
    """The same for every contrast: a table does not depend on the order of its rows."""
    return np.random.default_rng(0)
