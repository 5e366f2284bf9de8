"""Predicted against exact change of the forward KL, for steps of three sizes on one sampled token.

    python -m eval.figures.finite_step --output finite_step.svg

Predicted: c times the derivative (methods.directions). Exact: the divergence after the step minus before.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from eval.figures.command import run, small_print
from eval.figures.rows import Rows, describe, step, synthetic_rows
from eval.figures.style import INK, MUTED, PALETTE, new_figure, save
from methods.directions import full_direction
from methods.measures import FORWARD_KL
from methods.provenance import MARKS

SIZES = (0.01, 0.3, 1.0)
ROWS, VOCAB = 900, 200
OUTSIDE = 0.05  # as a trust region that the derivative is asked about; the DPPO paper's delta


def outside(seed: int) -> Rows:
    """The synthetic rows whose divergence is above OUTSIDE."""
    rows = synthetic_rows(ROWS, VOCAB, seed)
    return rows.where(FORWARD_KL.value(rows.mu, rows.pi) > OUTSIDE)


def changes(rows: Rows, size: float) -> tuple[Tensor, Tensor]:
    """(predicted, exact) change of KL(mu || pi) for c = +size on the even rows and -size on the odd ones, [N]."""
    signs = 1.0 - 2.0 * (torch.arange(len(rows.sampled), dtype=torch.float64) % 2)
    predicted = size * signs * full_direction(FORWARD_KL, rows.mu, rows.pi, rows.sampled)
    after = step(rows.pi, rows.sampled, size * signs)
    return predicted, FORWARD_KL.value(rows.mu, after) - FORWARD_KL.value(rows.mu, rows.pi)


def right_signs(rows: Rows, predicted: Tensor, exact: Tensor) -> tuple[float, float, int]:
    """Shares of rows where predicted and ratio direction have the exact sign; rows predicted up that went down."""
    signs = 1.0 - 2.0 * (torch.arange(len(rows.sampled)) % 2)
    chosen = rows.sampled.unsqueeze(-1)
    ratio = signs * (rows.pi - rows.mu).gather(-1, chosen).squeeze(-1)
    false_alarms = int(((predicted > 0) & (exact < 0)).sum())
    return (
        float(((predicted > 0) == (exact > 0)).double().mean()),
        float(((ratio > 0) == (exact > 0)).double().mean()),
        false_alarms,
    )


def draw(output: Path, seed: int) -> None:
    """A panel per step size."""
    rows = outside(seed)
    note = (
        f"{describe(ROWS, VOCAB, seed)}; shown: the {len(rows.sampled):,} with KL(mu || pi) > {OUTSIDE}, stepped by "
        "+c (even rows) or -c (odd). The KL is convex in the logits, so no point lies below the line: a predicted "
        f"increase is never wrong, a predicted decrease can be (orange) [N]. [N] {MARKS['N']}."
    )
    figure, grid = new_figure(1, len(SIZES), (12.6, 4.7), small_print(note, 12.6))
    for axes, size in zip(grid[0], SIZES, strict=True):
        predicted, exact = changes(rows, size)
        by_derivative, by_ratio, _ = right_signs(rows, predicted, exact)
        wrong = (predicted > 0) != (exact > 0)
        low, high = float(predicted.min()), float(predicted.max())
        axes.plot([low, high], [low, high], color=INK, linewidth=1.0)
        axes.axhline(0, color=MUTED, linewidth=0.7)
        axes.axvline(0, color=MUTED, linewidth=0.7)
        for chosen, colour, marker in ((~wrong, PALETTE[0], "o"), (wrong, PALETTE[1], "^")):
            axes.plot(predicted[chosen].numpy(), exact[chosen].numpy(), marker, color=colour, markersize=2.6, alpha=0.7)
        axes.set_title(f"c = {size:g}: sign right {by_derivative:.3f} (ratio {by_ratio:.3f})")
        axes.set_xlabel("predicted change, nats")
        axes.xaxis.set_major_locator(MaxNLocator(5))
    grid[0][0].set_ylabel("exact change, nats")
    texts = {"Title": "Predicted and exact change of the divergence", "Description": note}
    save(figure, output, texts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw; 0, or 2 after one line that says what is wrong."""
    return run("finite_step", __doc__.splitlines()[0], draw, arguments)


if __name__ == "__main__":
    sys.exit(main())
