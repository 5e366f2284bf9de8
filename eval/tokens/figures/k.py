"""What the retained K costs: wrong signs against the whole vocabulary, captured divergence, and the gap, by tail rule.

python -m eval.tokens.figures.k --table tokens_sweep.csv --output token_k.svg
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from eval.figures.style import DASHES, MUTED, PALETTE, new_figure, save
from eval.statistics import mean_interval
from eval.tokens.figures.tables import number, rows, run
from methods.directions import TAIL_RULES

SETTINGS = (
    ("wrong_sign", "Wrong sign", "share of tokens outside,\nagainst the whole vocabulary"),
    ("captured", "Captured divergence", "share of the full forward KL"),
    ("gap", "Gap in unsafe-keep", "predicted minus ratio"),
)
NOTE = (
    "Same states and steps for every K; outside: reduced forward KL with that K above 0.15. Bars: 95 % t interval over "
    "seeds, from 3."
)


def draw(table: Path, output: Path) -> None:
    """Three axes: the unmasked probe of the table's first setting, against K."""
    found = rows(table, ["k", "rule", *(name for name, _, _ in SETTINGS)], update="unmasked")
    found = [row for row in found if row["setting"] == found[0]["setting"]]
    sizes = [k for k in dict.fromkeys(row["k"] for row in found) if k != "V"]
    figure, grid = new_figure(1, 3, (13.2, 4.0), NOTE)
    for (column, title, unit), axes in zip(SETTINGS, grid[0], strict=True):
        for number_of, rule in enumerate(TAIL_RULES):
            intervals = [mean_interval(_finite(found, column, k=k, rule=rule), np.random.default_rng(0)) for k in sizes]
            means = np.array([interval.mean for interval in intervals])
            bars = [
                means - np.array([interval.low for interval in intervals]),
                np.array([interval.high for interval in intervals]) - means,
            ]
            axes.errorbar(
                np.arange(len(sizes)) + 0.06 * (number_of - 1.5),
                means,
                yerr=np.nan_to_num(np.clip(bars, 0, None)),
                color=PALETTE[number_of],
                linestyle=DASHES[number_of],
                marker="o",
                markersize=4,
                linewidth=1.8,
                label="top K and tail" if column == "captured" else rule,
            )
            if column == "captured":
                break  # the divergence has no tail rule
        whole = _finite(found, column, k="V", rule="full")
        axes.axhline(float(np.mean(whole)) if whole else np.nan, color=MUTED, linewidth=1, label="whole vocabulary")
        axes.set_xticks(range(len(sizes)), sizes)
        axes.set_xlabel("K")
        axes.set_ylabel(unit)
        axes.set_title(title, parse_math=False)
        axes.legend(frameon=False, fontsize=9)
    save(figure, output, {"Title": "Tail rules against K", "Description": NOTE})


def _finite(found: Sequence[dict[str, str]], column: str, **wanted: str) -> list[float]:
    values = [number(row, column) for row in found if all(row[name] == value for name, value in wanted.items())]
    return [value for value in values if np.isfinite(value)]


def main(arguments: Sequence[str] | None = None) -> int:
    """See the module docstring."""
    return run("eval.tokens.figures.k", __doc__, draw, arguments)


if __name__ == "__main__":
    sys.exit(main())
