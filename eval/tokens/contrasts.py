"""One value per seed, out of the study's rows, and what follows for its mean.

Differences are paired where seeds are shared, else stratified.

Seeds are the unit. Intervals are 95 % ones for one contrast each, not corrected for how many a table has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eval.statistics import Interval, mean_interval, stratified_mean
from eval.tokens import axes
from eval.tokens.rates import merge
from eval.tokens.records import GROUP
from eval.tokens.study import MAIN, MAIN_FILTER

Row = Mapping[str, Any]
Group = tuple[str, str, str]  # setting, update, variant
Parts = tuple[str, ...]  # names of subsets that are taken together
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


def group_of(row: Row) -> Group:
    """What runs of different seeds have in common."""
    setting, update, variant = (row[name] for name in GROUP)
    return setting, update, variant


def by_seed(rows: Sequence[Row], column: str) -> Values:
    """A column of rows of one setting; seeds in which it is nan are left out."""
    return {row["seed"]: float(row[column]) for row in rows if not math.isnan(row[column])}


class Study:
    """Rows of `eval.tokens.study` by setting: forward KL, truth by the reduced divergence."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows: dict[tuple[Any, ...], list[Row]] = {}
        for row in rows:
            if all(row[name] == MAIN_FILTER[name] for name in ("measure", "truth")):
                key = (group_of(row), row["criterion"], row["delta"], row["subset"])
                self._rows.setdefault(key, []).append(row)
        self.groups: list[Group] = list(dict.fromkeys(key[0] for key in self._rows))

    def base(self) -> Group | None:
        """The base setting's unmasked probe."""
        setting = axes.base_of(name for name, update, _ in self.groups if update == "unmasked")
        return next((group for group in self.groups if group[:2] == (setting, "unmasked")), None)

    def values(
        self,
        group: Group,
        quantity: str,
        criterion: str,
        parts: Parts = ("all",),
        delta: float = MAIN[1],
    ) -> Values:
        """By seed, of these (disjoint) parts' tokens together; seeds in which the quantity is nan are left out."""
        found: dict[int, list[Row]] = {}
        for part in parts:
            for row in self._rows.get((group, criterion, delta, part), []):
                found.setdefault(row["seed"], []).append(row)
        return by_seed([{"seed": seed, **merge(rows).row()} for seed, rows in found.items()], quantity)

    def numbered_parts(self, group: Group, start: str) -> Parts:
        """The parts whose names are `start` and a number, by their number."""
        found = {key[3] for key in self._rows if key[0] == group and key[3].startswith(start)}
        return tuple(sorted(found, key=lambda name: int(name.removeprefix(start))))

    def half(self, group: Group) -> int:
        """Half of the setting's seeds, but at least two: fewer do not stand for the runs."""
        return max(2, math.ceil(len(self._rows.get((group, "aggregated", MAIN[1], "all"), [])) / 2))
