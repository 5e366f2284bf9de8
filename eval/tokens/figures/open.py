"""The open questions as differences with their intervals: the gap in unsafe-keep, and the gain in sign accuracy.

python -m eval.tokens.figures.open --table tokens_open.csv --output token_open.svg
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path

from eval.figures.style import MUTED, PALETTE, new_figure, save
from eval.files import InputError
from eval.tokens.figures.tables import Row, number, rows, run

QUANTITIES = {
    "gap": ("Gap in unsafe-keep", "left of 0: the prediction does better with the first"),
    "accuracy_gain": ("Gain in sign accuracy", "right of 0: the prediction does better with the first"),
}
CRITERIA = {"aggregated": ("aggregated tail", "o"), "full": ("whole vocabulary", "D")}
NOTE = (
    "Each row: the prediction's advantage over the ratio in the first-named condition minus that in the second.\n"
    "Forward KL; unmasked probe unless said otherwise; n: seeds. Bars: 95 % t interval over seeds (paired where seeds\n"
    "are shared), not adjusted for the number of rows: of twenty rows without any effect, about one bar misses 0.\n"
    "Hollow: too few seeds for a bar. Rows about K use the realised change over the whole vocabulary."
)


def draw(table: Path, output: Path) -> None:
    """A line per contrast, in the table's order."""
    columns = ["question", "contrast", "value", "low", "high", "n_seeds"]
    found = [row for row in rows(table, [*columns, "quantity", "criterion"], kind="difference") if _shown(row)]
    if not found:
        raise InputError(f"{table}: no difference in {' or '.join(QUANTITIES)}")
    contrasts = list(dict.fromkeys((row["question"], row["contrast"]) for row in found))
    figure, grid = new_figure(1, len(QUANTITIES), (13.2, 2.0 + 0.36 * len(contrasts)), NOTE)
    heights = {contrast: len(contrasts) - place for place, contrast in enumerate(contrasts)}
    for (quantity, (title, unit)), axes in zip(QUANTITIES.items(), grid[0], strict=True):
        mine = [row for row in found if row["quantity"] == quantity]
        for place, (criterion, (label, marker)) in enumerate(CRITERIA.items()):
            for row in (row for row in mine if row["criterion"] == criterion):
                height = heights[row["question"], row["contrast"]] + 0.15 * (1 - 2 * place)
                axes.plot(
                    [number(row, "low"), number(row, "high")], [height, height], color=PALETTE[place], linewidth=2
                )
                inside = "white" if math.isnan(number(row, "low")) else PALETTE[place]
                axes.plot(
                    [number(row, "value")], [height], marker, color=PALETTE[place], markerfacecolor=inside, markersize=5
                )
            axes.plot([], [], marker + "-", color=PALETTE[place], markersize=5, label=label)
        axes.axvline(0, color=MUTED, linewidth=1)
        axes.set_ylim(-0.9, len(contrasts) + 0.6)  # room for the legend below the last line
        axes.set_yticks(list(heights.values()), [""] * len(contrasts))
        axes.set_xlabel(unit, fontsize=9)
        axes.set_title(title, parse_math=False)
    grid[0][0].legend(frameon=False, fontsize=9, loc="lower left")
    grid[0][0].set_yticks(list(heights.values()), [_name(key, found) for key in contrasts], parse_math=False)
    save(figure, output, {"Title": "The open questions of the token analysis", "Description": NOTE})


def _shown(row: Row) -> bool:
    return row["quantity"] in QUANTITIES and row["criterion"] in CRITERIA


def _name(key: tuple[str, str], found: Sequence[Row]) -> str:
    """`staleness: staleness 2 against staleness 8 (n = 5)`."""
    seeds = [row["n_seeds"] for row in found if (row["question"], row["contrast"]) == key]
    return f"{key[0]}: {key[1]}  (n = {seeds[0]})"


def main(arguments: Sequence[str] | None = None) -> int:
    """See the module docstring."""
    return run("eval.tokens.figures.open", __doc__, draw, arguments)


if __name__ == "__main__":
    sys.exit(main())
