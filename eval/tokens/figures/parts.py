"""The gap in unsafe-keep by part of the tokens: age of the rollout policy, mini-batch, place, mu, sign of A.

python -m eval.tokens.figures.parts --table tokens_summary.csv --output token_parts.svg
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from eval.figures.style import MUTED, PALETTE, new_figure, save
from eval.tokens.figures.tables import number, rows, run
from eval.tokens.study import MAIN_TEXTS
from eval.tokens.summary import PAPER_GAP

CRITERION = "aggregated"
NOTE = (
    "Unsafe-keep, predicted (aggregated tail) minus ratio; forward KL, D > 0.15, unmasked probe. Bars: 95 % t\n"
    "interval over the seeds with such tokens; hollow: fewer than 3 of them, so no bar. n: disagreement tokens per\n"
    "seed, and seeds. Age and training step move together within a run."
)


def draw(table: Path, output: Path) -> None:
    """A row per part: the gap with its interval, and how many tokens disagree."""
    columns = ["subset", "gap", "gap_low", "gap_high", "disagreement_per_seed", "n_used"]
    found = rows(table, columns, update="unmasked", criterion=CRITERION, **MAIN_TEXTS)
    found = [row for row in found if row["setting"] == found[0]["setting"] and not np.isnan(number(row, "gap"))]
    figure, grid = new_figure(1, 1, (8.6, 1.2 + 0.27 * len(found)), NOTE)
    axes = grid[0][0]
    for height, row in enumerate(reversed(found)):
        gap, low, high = (number(row, name) for name in ("gap", "gap_low", "gap_high"))
        axes.plot([low, high], [height, height], color=PALETTE[0], linewidth=2)
        inside = "white" if np.isnan(low) else PALETTE[0]
        axes.plot([gap], [height], "o", color=PALETTE[0], markerfacecolor=inside, markersize=5)
    names = [
        f"{row['subset']}  (n = {number(row, 'disagreement_per_seed'):.1f}, {row['n_used']})" for row in reversed(found)
    ]
    axes.set_yticks(range(len(found)), [name.replace("$", "") for name in names])
    axes.axvline(0, color=MUTED, linewidth=1)
    axes.axvline(-PAPER_GAP, color=PALETTE[1], linestyle="dashed", linewidth=1.6, label="paper, all tokens [S]")
    axes.set_xlabel("difference of rates")
    axes.set_title("Gap in unsafe-keep by part of the tokens", parse_math=False)
    axes.legend(frameon=False, fontsize=9)
    save(figure, output, {"Title": "Gap in unsafe-keep by part of the tokens", "Description": NOTE})


def main(arguments: Sequence[str] | None = None) -> int:
    """See the module docstring."""
    return run("eval.tokens.figures.parts", __doc__, draw, arguments)


if __name__ == "__main__":
    sys.exit(main())
