"""Rows of the study's tables by setting (setting, update, variant), as one value per seed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from eval.tokens import axes
from eval.tokens.contrasts import Values
from eval.tokens.rates import merge
from eval.tokens.records import GROUP
from eval.tokens.study import MAIN, MAIN_FILTER

Row = Mapping[str, Any]
Group = tuple[str, str, str]  # setting, update, variant
Parts = tuple[str, ...]  # names of subsets that are taken together


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
