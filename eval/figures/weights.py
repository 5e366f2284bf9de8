"""The weight in front of r · A · grad log pi against the ratio, for PPO, SPO, DPPO and DRPO and several mu.

    python -m eval.figures.weights --output weights.svg

The weights are those of the shipped losses: g / (r A) of each method's coefficient.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from eval.figures.command import run, small_print
from eval.figures.style import DASHES, INK, PALETTE, new_figure, save
from methods import registry
from methods.directions import ratio_direction
from methods.masks import MaskConfig, masked_coefficient
from methods.measures import binary_tv
from methods.provenance import MARKS
from methods.signals import Signals

PROBABILITIES = (0.01, 0.1, 0.5, 0.9)  # mu of the sampled token
HIGHEST_RATIO, WEIGHTS = 2.5, (-1.25, 2.1)  # the axes; SPO leaves them
POINTS = 2001
DELTA, EPS = 0.15, 0.2


@dataclass(frozen=True)
class Curve:
    """A method with its options; the title carries the marks of formula and constants."""

    title: str
    coefficient: Callable[[Signals], Tensor]


def _catalogue(name: str, **options: float | None) -> Callable[[Signals], Tensor]:
    method = registry.get(name)
    config = method.configure(options)
    return lambda signals: method.coefficient(signals, config)


def _binary_dppo(signals: Signals) -> Tensor:
    divergence = binary_tv(signals.logp_mu, signals.logp_pi)
    config = MaskConfig(delta=DELTA, ratio_cap=None)
    return masked_coefficient(signals, config, divergence=divergence, direction=ratio_direction(signals))


def curves() -> tuple[Curve, ...]:
    """The methods of the DRPO paper's Table 1, uncapped."""
    return (
        Curve("PPO, clip-higher 0.2/.28 [F]", _catalogue("ppo_clip_higher", ratio_cap=None)),
        Curve(f"SPO, eps {EPS} [F; eps I]", _catalogue("spo", eps=EPS)),
        Curve(f"DPPO Binary-TV, delta {DELTA} [F]", _binary_dppo),
        Curve(f"DRPO, delta {DELTA} [F; delta I]", _catalogue("drpo", delta=DELTA, ratio_cap=None)),
    )


def signals(mu_k: float, advantage: float) -> Signals:
    """One row of tokens with probability mu_k each, whose ratio runs over the axis as far as pi_k <= 1. [1, POINTS]."""
    ratio = torch.from_numpy(np.linspace(1e-3, min(HIGHEST_RATIO, 1 / mu_k), POINTS))[None]
    mu = torch.full_like(ratio, mu_k)
    return Signals((ratio * mu).log(), mu.log(), torch.full_like(ratio, advantage), torch.ones_like(ratio).bool())


def weight(curve: Curve, row: Signals) -> Tensor:
    """g / (r A), [1, POINTS]."""
    return curve.coefficient(row) / (row.ratio() * row.advantages)


def draw(output: Path, seed: int) -> None:
    """A column per mu, a row per sign of the advantage."""
    note = (
        "Weight of r A grad log pi as the shipped losses compute it (DRPO paper, Table 1, Fig. 1; DPPO paper, Fig. 1), "
        "no cap on r. Lines end where pi = 1. In probability a ratio band is wide for a likely token and narrow for a "
        "rare one; abs(pi - mu) is one scale for both. With the released delta = 12.5 [F] DRPO's weight is everywhere "
        f"within 0.08 of 1 [N]. {', '.join(f'[{mark}] {text}' for mark, text in MARKS.items())}."
    )
    figure, grid = new_figure(2, len(PROBABILITIES), (12.6, 6.4), small_print(note, 12.6))
    shown = curves()
    for row, advantage in zip(grid, (1.0, -1.0), strict=True):
        for axes, mu_k in zip(row, PROBABILITIES, strict=True):
            tokens = signals(mu_k, advantage)
            axes.axhline(0, color=INK, linewidth=0.7)
            axes.axvline(1, color=INK, linewidth=0.7)
            for number, curve in enumerate(shown):
                values = weight(curve, tokens)[0].numpy()
                style = {"color": PALETTE[number], "linestyle": DASHES[number], "linewidth": 1.9}
                axes.plot(tokens.ratio()[0].numpy(), values, label=curve.title, **style)
            axes.set(xlim=(0, HIGHEST_RATIO), ylim=WEIGHTS)
            axes.set_title(rf"$\mu$ = {mu_k:g}, A {'>' if advantage > 0 else '<'} 0")
        row[0].set_ylabel("weight")
    for axes in grid[-1]:
        axes.set_xlabel(r"ratio $\pi / \mu$")
    handles, titles = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, titles, loc="outside upper center", ncols=len(handles), frameon=False)
    save(figure, output, {"Title": "Weights of PPO, SPO, DPPO and DRPO", "Description": note})


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw; 0, or 2 after one line that says what is wrong."""
    return run("weights", __doc__.splitlines()[0], draw, arguments)


if __name__ == "__main__":
    sys.exit(main())
