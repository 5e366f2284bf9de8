"""Trainer against rollout before any update: ratio and probability shift by token probability (DPPO paper, Figure 2).

python -m eval.tokens.figures.mismatch --table mismatch_profile.csv --output token_mismatch.svg
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from eval.figures.style import DASHES, MUTED, PALETTE, new_figure, save
from eval.files import InputError
from eval.tokens.figures.tables import Row, number, rows, run

TRAIN = "fp32"
COLUMNS = ("engine", "rollout", "mu_low", "mu_high", "tokens", "ratio_q05", "ratio_q50", "ratio_q95", "shift_mean")
NOTE = "The same weights on both sides, training in float32. Left: 5 %, 50 % and 95 % of the ratio in each bin of mu."
# Name in the table -> in the figure, and what its tokens are.
ENGINES = {
    "hf": ("Hugging Face", "one set of sampled tokens for all precisions"),
    "vllm": ("vLLM", "in each precision the tokens that it sampled"),
}
# Beside colour and dashes, so that lines are told apart in print too.
MARKERS = ("o", "s", "^", "D", "v", "P")


def draw(table: Path, output: Path) -> None:
    """A row of two axes per rollout engine, the ratio and the shift; a line per precision, the same in every row."""
    found = rows(table, COLUMNS, train=TRAIN)
    engines = list(dict.fromkeys(row["engine"] for row in found))
    precisions = list(dict.fromkeys(row["rollout"] for row in found))
    unknown = [engine for engine in engines if engine not in ENGINES]
    if unknown:
        raise InputError(f"{table}: engine = {unknown[0]!r}: allowed are {', '.join(ENGINES)}")
    note = "\n".join([NOTE, " ".join(f"{name}: {tokens}." for name, tokens in map(ENGINES.__getitem__, engines))])
    figure, grid = new_figure(len(engines), 2, (10.6, 0.9 + 3.4 * len(engines)), note)
    for (ratio, shift), engine in zip(grid, engines, strict=True):
        own = [row for row in found if row["engine"] == engine]
        for place, precision in enumerate(precisions):
            line = [row for row in own if row["rollout"] == precision]
            if line:
                _line(ratio, shift, line, place, len(precisions))
        ratio.axhline(1, color=MUTED, linewidth=1)
        for axes in (ratio, shift):
            axes.set(xscale="log", yscale="log", xlabel="probability of the sampled token, mu")
        # Ratios lie within a decade or two: 0.5, 0.8, 1.2, not powers of ten.
        ratio.yaxis.set_major_locator(LogLocator(subs=(1, 1.2, 1.5, 2, 3, 5, 6, 7, 8)))
        ratio.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))
        ratio.yaxis.set_minor_formatter(NullFormatter())
        ratio.set_ylabel("importance ratio pi / mu")
        shift.set_ylabel("mean of |pi - mu|")
        ratio.set_title(f"Importance ratio, {ENGINES[engine][0]} rollout", parse_math=False)
        shift.set_title(f"Probability shift, {ENGINES[engine][0]} rollout", parse_math=False)
        shift.legend(frameon=False, fontsize=9, handlelength=3.2, loc="center left", bbox_to_anchor=(1.0, 0.5))
    for axes in grid.T:
        limits = [each.get_ylim() for each in axes]
        for each in axes:
            each.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
    save(figure, output, {"Title": "Mismatch of trainer and rollout by token probability", "Description": note})


def _line(ratio: Any, shift: Any, found: Sequence[Row], place: int, places: int) -> None:
    """One precision; ratios of several stand beside each other, so that their bars do not hide one another."""
    middle = np.array([(number(row, "mu_low") + number(row, "mu_high")) / 2 for row in found])
    moved = middle * (1 + 0.03 * (place - places / 2))
    low, mid, high = (np.array([number(row, f"ratio_q{q}") for row in found]) for q in ("05", "50", "95"))
    look: dict[str, Any] = {"color": PALETTE[place], "marker": MARKERS[place], "markersize": 4}
    look["linestyle"] = DASHES[place % len(DASHES)]
    ratio.errorbar(moved, mid, yerr=[mid - low, high - mid], capsize=2, **look)
    shift.plot(middle, [number(row, "shift_mean") for row in found], label=found[0]["rollout"], **look)


def main(arguments: Sequence[str] | None = None) -> int:
    """See the module docstring."""
    return run("eval.tokens.figures.mismatch", __doc__, draw, arguments)


if __name__ == "__main__":
    sys.exit(main())
