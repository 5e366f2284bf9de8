"""The prediction against the ratio by age of the rollout policy, within a run and for each staleness that the tier has.

python -m eval.tokens.figures.staleness --table tokens_seeds.csv --output token_staleness.svg
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from eval.figures.style import DASHES, MUTED, PALETTE, new_figure, save
from eval.files import InputError
from eval.statistics import mean_interval
from eval.tokens.axes import AXES, base_of
from eval.tokens.figures.tables import Row, rows, run
from eval.tokens.rates import merge
from eval.tokens.study import MAIN_TEXTS

CRITERION = "aggregated"
START = "age "
STALENESS_SETTINGS = next(axis.settings for axis in AXES if axis.field == "staleness")
# Axes: title, unit, and its lines: rate and dashes.
AXES_SHOWN = (
    ("Gap in unsafe-keep", "predicted minus ratio", (("gap", DASHES[0]),)),
    ("Sign accuracy", "share of tokens outside", (("sign_accuracy", DASHES[0]), ("sign_accuracy_ratio", DASHES[3]))),
)
NOTE = (
    "Aggregated tail; forward KL, D > 0.15, unmasked probe. Three points per line: the younger and the older half\n"
    "of the ages below the staleness, and the age that equals it. A run has the younger ages in its first steps only,\n"
    "so age and training step move together. Bars: 95 % t interval over seeds of each point; differences between\n"
    "lines are among the open questions. A point needs a value from at least half of the seeds. Dotted: the ratio."
)


def draw(table: Path, output: Path) -> None:
    """A line per staleness setting and the base's, against the mean age of a lot."""
    found = rows(table, ["setting", "subset", "seed"], update="unmasked", criterion=CRITERION, **MAIN_TEXTS)
    found = [row for row in found if row["subset"].startswith(START)]
    present = list(dict.fromkeys(row["setting"] for row in found))
    settings = [name for name in dict.fromkeys((base_of(present), *STALENESS_SETTINGS)) if name in present]
    if not settings:
        raise InputError(f"{table}: no rows by age")
    figure, grid = new_figure(1, len(AXES_SHOWN), (10.6, 4.4), NOTE)
    for axes, (title, unit, lines) in zip(grid[0], AXES_SHOWN, strict=True):
        for place, setting in enumerate(settings):
            mine = [row for row in found if row["setting"] == setting]
            for quantity, dashes in lines:
                points = [point for point in _points(mine, quantity) if not math.isnan(point[1])]
                # Lines that share an age stand side by side.
                ages = [age + 0.12 * (place - (len(settings) - 1) / 2) for age, *_ in points]
                means = np.array([mean for _, mean, *_ in points])
                bars = [means - [low for *_, low, _ in points], [high for *_, high in points] - means]
                axes.errorbar(
                    ages,
                    means,
                    yerr=np.nan_to_num(np.clip(bars, 0, None)) if dashes == DASHES[0] else None,
                    color=PALETTE[place],
                    linestyle=dashes,
                    marker="o",
                    markersize=4,
                    linewidth=1.8,
                    label=_name(setting, mine) if dashes == DASHES[0] else None,
                )
        axes.set_xlabel("age of the rollout policy in weight syncs")
        axes.set_ylabel(unit)
        axes.set_title(title, parse_math=False)
    grid[0][0].axhline(0, color=MUTED, linewidth=1)
    for text in grid[0][0].legend(frameon=False, fontsize=9).get_texts():
        text.set_parse_math(False)  # a setting's name
    save(figure, output, {"Title": "The prediction by age of the rollout policy", "Description": NOTE})


def _points(mine: Sequence[Row], quantity: str) -> list[tuple[float, float, float, float]]:
    """(mean age, mean, low, high) of each lot; nan where fewer than half of the setting's seeds have a value."""
    ages = sorted({int(row["subset"].removeprefix(START)) for row in mine})
    younger, oldest = ages[:-1], ages[-1:]
    half = (len(younger) + 1) // 2
    seeds = sorted({row["seed"] for row in mine}, key=int)
    points = []
    for lot in filter(None, (younger[:half], younger[half:], oldest)):
        names = {f"{START}{age}" for age in lot}
        parts = [[row for row in mine if row["seed"] == seed and row["subset"] in names] for seed in seeds]
        values = [float(merge(part).row()[quantity]) for part in parts]
        known = [value for value in values if not math.isnan(value)]
        if len(known) < max(2, len(seeds) / 2):
            points.append((float(np.mean(lot)), math.nan, math.nan, math.nan))
            continue
        interval = mean_interval(known, np.random.default_rng(0))
        points.append((float(np.mean(lot)), interval.mean, interval.low, interval.high))
    return points


def _name(setting: str, mine: Sequence[Row]) -> str:
    """`staleness 8 (61 seeds)`: the oldest age is the staleness."""
    oldest = max(int(row["subset"].removeprefix(START)) for row in mine)
    return f"{setting}: staleness {oldest} ({len({row['seed'] for row in mine})} seeds)"


def main(arguments: Sequence[str] | None = None) -> int:
    """See the module docstring."""
    return run("eval.tokens.figures.staleness", __doc__, draw, arguments)


if __name__ == "__main__":
    sys.exit(main())
