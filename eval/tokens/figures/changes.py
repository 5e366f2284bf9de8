"""Realised changes of the divergence of kept disagreement tokens, pooled over seeds (arXiv 2607.10848, Figure 4).

    python -m eval.tokens.figures.changes --table tokens_changes.csv --output token_changes.svg

Pooling weighs seeds by their tokens, so this figure describes; the tests are on seeds.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eval.figures.style import MUTED, PALETTE, new_figure, save
from eval.tokens.figures.tables import Row, groups, name_of, number, rows, run
from eval.tokens.run_tables import CHANGE_COLUMNS, EDGES

CRITERION = "aggregated"
# Share below 0, pooled [S].
PAPER = {"ratio": 0.629, CRITERION: 0.651}
TITLES = {"ratio": "kept by the ratio", CRITERION: "kept by the prediction, aggregated tail"}
NOTE = (
    "Tokens with D > 0.15 on which the criteria disagree; the outermost bins hold what lies beyond. Paper's shares [S]."
)


def draw(table: Path, output: Path) -> None:
    """One axes per setting and update, a histogram per keeper."""
    found = rows(table, CHANGE_COLUMNS, criterion=CRITERION)
    kinds = groups(found)
    figure, grid = new_figure(len(kinds), 1, (8.4, 0.5 + 2.7 * len(kinds)), NOTE)
    for kind, (axes,) in zip(kinds, grid, strict=True):
        own = [row for row in found if (row["setting"], row["update"], row["variant"]) == kind]
        _histograms(axes, own)
        axes.set_title(name_of(kind), parse_math=False)
    save(figure, output, {"Title": "Realised changes of the divergence of kept tokens", "Description": NOTE})


def _histograms(axes: Any, own: Sequence[Row]) -> None:
    for keeper, colour, style in (("ratio", PALETTE[1], "dashed"), (CRITERION, PALETTE[0], "solid")):
        counts = np.zeros(len(EDGES) - 1)
        for row in own:
            if row["keeper"] == keeper:
                counts[int(np.argmin(np.abs(EDGES[:-1] - number(row, "low"))))] += number(row, "count")
        total = counts.sum()
        below = counts[: len(counts) // 2].sum() / total if total else np.nan
        label = f"{TITLES[keeper]}: {below:.1%} below 0 of {int(total)} (paper {PAPER[keeper]:.1%})"
        axes.stairs(counts / max(total, 1), EDGES, color=colour, linestyle=style, linewidth=1.9, label=label)
    axes.axvline(0, color=MUTED, linewidth=1)
    axes.set_xlabel("realised change of the reduced forward KL, nats")
    axes.set_ylabel("share of kept tokens")
    # Room for the legend above the peak.
    axes.set_ylim(top=1.35 * axes.get_ylim()[1])
    axes.legend(frameon=False, fontsize=9, loc="upper left")


def main(arguments: Sequence[str] | None = None) -> int:
    """See the module docstring."""
    return run("eval.tokens.figures.changes", __doc__, draw, arguments)


if __name__ == "__main__":
    sys.exit(main())
