"""Unsafe-keep of the predicted direction against the ratio's, a point per seed (arXiv 2607.10848, Figure 3).

    python -m eval.tokens.figures.unsafe_keep --table tokens_seeds.csv --output token_unsafe_keep.svg

Left of each pair of axes: both rates, a line per seed. Right: the paired difference of each seed, its mean with the
t interval (from 3 seeds on), and the paper's difference; all rows on one scale.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eval.figures.style import INK, MUTED, PALETTE, new_figure, save
from eval.statistics import mean_interval
from eval.tokens.figures.tables import Row, groups, name_of, number, rows, run
from eval.tokens.records import RUN
from eval.tokens.study import MAIN_TEXTS
from eval.tokens.summary import PAPER_GAP

CRITERION = "aggregated"
# Per-seed means of the paper [S]: predicted, ratio.
PAPER = (0.342, 0.369)
NOTE = (
    "Kept tokens whose divergence rose in a real update, among those on which the criteria disagree (D > 0.15).\n"
    "Forward KL on the recorded top K. Lines and dots: seeds. Paper: its per-seed means [S]."
)


def draw(table: Path, output: Path) -> None:
    """A row of two axes per setting and update."""
    wanted = {**MAIN_TEXTS, "subset": "all", "criterion": CRITERION}
    found = rows(table, [*RUN, "unsafe_keep", "unsafe_keep_ratio", "gap"], **wanted)
    kinds = groups(found)
    figure, grid = new_figure(len(kinds), 2, (9.6, 0.5 + 2.9 * len(kinds)), NOTE)
    for kind, (left, right) in zip(kinds, grid, strict=True):
        own = [row for row in found if (row["setting"], row["update"], row["variant"]) == kind]
        _pairs(left, own, name_of(kind))
        _differences(right, own)
    limits = [right.get_xlim() for _, right in grid]
    for _, right in grid:
        right.set_xlim(min(low for low, _ in limits), max(high for _, high in limits))
    save(figure, output, {"Title": "Unsafe-keep, predicted direction against ratio", "Description": NOTE})


def _pairs(axes: Any, own: Sequence[Row], title: str) -> None:
    pairs = np.array([[number(row, "unsafe_keep_ratio"), number(row, "unsafe_keep")] for row in own])
    for pair in pairs:
        axes.plot([0, 1], pair, color=PALETTE[0], alpha=0.35, linewidth=0.9, marker="o", markersize=2.5)
    axes.plot([0, 1], np.nanmean(pairs, axis=0), color=INK, linewidth=2.2, marker="o", label="mean over seeds")
    axes.plot([0, 1], PAPER[::-1], color=PALETTE[1], linewidth=2.2, linestyle="dashed", marker="s", label="paper [S]")
    axes.set_xticks([0, 1], ["ratio", "predicted"])
    axes.set_xlim(-0.25, 1.25)
    axes.set_ylim(0, 1)
    axes.set_ylabel("unsafe-keep rate")
    axes.set_title(title, parse_math=False)
    axes.legend(frameon=False, fontsize=9)


def _differences(axes: Any, own: Sequence[Row]) -> None:
    gaps = np.array([number(row, "gap") for row in own])
    gaps = np.sort(gaps[~np.isnan(gaps)])
    interval = mean_interval(list(gaps), np.random.default_rng(0))
    heights = (np.arange(len(gaps)) + 1) / (len(gaps) + 1)
    axes.axvline(0, color=MUTED, linewidth=1)
    axes.plot(gaps, heights, "o", color=PALETTE[0], markersize=3.5, alpha=0.7)
    axes.axvline(-PAPER_GAP, color=PALETTE[1], linestyle="dashed", linewidth=1.8, label="paper -0.027 [S]")
    if np.isfinite([interval.low, interval.high]).all():
        axes.axvspan(
            interval.low, interval.high, color=INK, alpha=0.12, linewidth=0, label="95 % t interval of the mean"
        )
    axes.axvline(interval.mean, color=INK, linewidth=2, label=f"mean {interval.mean:+.3f}")
    axes.set_yticks([])
    axes.set_xlabel("unsafe-keep, predicted minus ratio")
    axes.set_title(f"{int((gaps < 0).sum())} of {len(gaps)} seeds below 0 (paper: 38 of 61)", parse_math=False)
    # Below the axes: inside it would hide dots or the line at 0.
    axes.legend(frameon=False, fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=3, columnspacing=1.2)


def main(arguments: Sequence[str] | None = None) -> int:
    """See the module docstring."""
    return run("eval.tokens.figures.unsafe_keep", __doc__, draw, arguments)


if __name__ == "__main__":
    sys.exit(main())
