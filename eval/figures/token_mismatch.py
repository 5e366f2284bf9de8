"""Trainer against rollout before any update: ratio and probability shift by token probability (DPPO paper, Figure 2).

python -m eval.figures.token_mismatch --table mismatch_profile.csv --output token_mismatch.svg
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from eval.figures.style import MUTED, PALETTE, new_figure, save
from eval.figures.token_tables import number, rows, run

TRAIN = "fp32"
NOTE = (
    "One set of sampled tokens, the same weights on both sides, training in float32. Left: 5 %, 50 % and 95 % of the "
    "ratio in each cell of mu."
)


def draw(table: Path, output: Path) -> None:
    """A column of two axes per rollout precision: the ratio above, the shift below."""
    found = rows(table, ["rollout", "mu_low", "mu_high", "tokens", "ratio_q50", "shift_mean"], train=TRAIN)
    precisions = list(dict.fromkeys(row["rollout"] for row in found))
    figure, grid = new_figure(1, 2, (10.6, 4.2), NOTE)
    ratio, shift = grid[0]
    for place, precision in enumerate(precisions):
        own = [row for row in found if row["rollout"] == precision]
        middle = np.array([(number(row, "mu_low") + number(row, "mu_high")) / 2 for row in own])
        moved = middle * (1 + 0.03 * (place - len(precisions) / 2))
        low, mid, high = (np.array([number(row, f"ratio_q{q}") for row in own]) for q in ("05", "50", "95"))
        colour = PALETTE[place]
        ratio.errorbar(moved, mid, yerr=[mid - low, high - mid], color=colour, marker="o", markersize=3.5, capsize=2)
        means = [number(row, "shift_mean") for row in own]
        shift.plot(middle, means, color=colour, marker="o", markersize=3.5, label=f"{precision} rollout")
    ratio.axhline(1, color=MUTED, linewidth=1)
    for axes in (ratio, shift):
        axes.set_xscale("log")
        axes.set_xlabel("probability of the sampled token, mu")
    ratio.set_yscale("log")
    shift.set_yscale("log")
    ratio.set_ylabel("importance ratio pi / mu")
    shift.set_ylabel("mean of |pi - mu|")
    ratio.set_title("Importance ratio", parse_math=False)
    shift.set_title("Probability shift", parse_math=False)
    shift.legend(frameon=False, fontsize=9)
    save(figure, output, {"Title": "Mismatch of trainer and rollout by token probability", "Description": NOTE})


def main(arguments: Sequence[str] | None = None) -> int:
    """See the module docstring."""
    return run("eval.figures.token_mismatch", __doc__, draw, arguments)


if __name__ == "__main__":
    sys.exit(main())
