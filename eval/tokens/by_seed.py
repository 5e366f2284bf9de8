"""Rows of the study's tables by setting (panel, update, label), as one value per seed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from eval.tokens import axes
from eval.tokens.contrasts import Values
from eval.tokens.rates import merged
from eval.tokens.study import MAIN

Row = Mapping[str, Any]
Setting = tuple[str, str, str]  # panel, update, label
Parts = tuple[str, ...]  # names of subsets that are taken together


def setting_of(row: Row) -> Setting:
    """What runs of different seeds have in common."""
    return row["panel"], row["update"], row["label"]


def by_seed(rows: Sequence[Row], column: str) -> Values:
    """A column of rows of one setting; seeds in which it is nan are left out."""
    return {row["seed"]: float(row[column]) for row in rows if not math.isnan(row[column])}


class Study:
    """Rows of `eval.tokens.study` by setting: forward KL, truth by the reduced divergence."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows: dict[tuple[Any, ...], list[Row]] = {}
        for row in rows:
            if row["measure"] == MAIN[0] and row["truth"] == "reduced":
                key = (setting_of(row), row["criterion"], row["delta"], row["subset"])
                self._rows.setdefault(key, []).append(row)
        self.settings: list[Setting] = list(dict.fromkeys(key[0] for key in self._rows))

    def base(self) -> Setting | None:
        """The base panel's unmasked probe."""
        panel = axes.base_of(name for name, update, _ in self.settings if update == "unmasked")
        return next((setting for setting in self.settings if setting[:2] == (panel, "unmasked")), None)

    def values(
        self,
        setting: Setting,
        quantity: str,
        criterion: str,
        parts: Parts = ("all",),
        delta: float = MAIN[1],
    ) -> Values:
        """By seed, of these (disjoint) parts' tokens together; seeds in which the quantity is nan are left out."""
        found: dict[int, list[Row]] = {}
        for part in parts:
            for row in self._rows.get((setting, criterion, delta, part), []):
                found.setdefault(row["seed"], []).append(row)
        return by_seed([{"seed": seed, **merged(rows).row()} for seed, rows in found.items()], quantity)

    def numbered(self, setting: Setting, start: str) -> Parts:
        """The parts whose names are `start` and a number, by their number."""
        found = {key[3] for key in self._rows if key[0] == setting and key[3].startswith(start)}
        return tuple(sorted(found, key=lambda name: int(name.removeprefix(start))))

    def half(self, setting: Setting) -> int:
        """Half of the setting's seeds, but at least two: fewer do not stand for the runs."""
        return max(2, math.ceil(len(self._rows.get((setting, "aggregated", MAIN[1], "all"), [])) / 2))
