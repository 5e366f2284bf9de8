"""Where ratio and predicted direction disagree, over (mu_k, pi_k), for several global terms.

    python -m eval.figures.disagreement --output disagreement.svg

Each point is a pair of policies that has these probabilities of the sampled token and this global term; the signs are
what `methods.directions` says about that pair.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from matplotlib.patches import Patch
from numpy.typing import NDArray
from torch import Tensor

from eval.figures.command import run, small_print
from eval.figures.style import GRID, INK, PALETTE, new_figure, save
from methods.directions import full_direction
from methods.measures import FORWARD_KL
from methods.provenance import MARKS

GLOBAL_TERMS = (0.15, 0.05, -0.05, -0.15)
SPREAD = 512  # tokens that share a mass whose collisions are not wanted: 1/512 is below the figure's resolution
SIDE = 161
REGIONS = (
    ("#e9e9e9", "no policies have this global term"),
    ("#ffffff", "the two agree"),
    (PALETTE[1], "ratio: outward, derivative: inward"),
    (PALETTE[0], "ratio: inward, derivative: outward"),
)
EMPTY, AGREE, FALSE_ALARM, MISSED = range(4)


def rest_masses(mu_k: NDArray[np.float64], pi_k: NDArray[np.float64], b: float) -> tuple[NDArray[np.float64], ...]:
    """(x, u, possible): how pi spreads 1 - pi_k so that sum_i pi_i (pi_i - mu_i) = b; all in the shape of mu_k.

    Beside k, one token holds the rest of mu and x of pi; one holds u of pi and none of mu; the last of pi is spread
    over SPREAD tokens. x runs from where the sum is least to 0, then u from 0 to all: every value between is met.
    """
    rest_mu, rest_pi = 1 - mu_k, 1 - pi_k
    wanted = b - pi_k * (pi_k - mu_k)
    share = 1 / SPREAD
    start = np.minimum(rest_pi, (rest_mu + 2 * share * rest_pi) / (2 + 2 * share))
    least = start * (start - rest_mu) + share * (rest_pi - start) ** 2
    possible = (wanted >= least) & (wanted <= rest_pi**2)
    # x^2 - x rest_mu + (rest_pi - x)^2 / SPREAD = wanted, the smaller root; u = 0.
    half = (rest_mu + 2 * share * rest_pi) / (2 * (1 + share))
    root = half - np.sqrt(np.maximum(half**2 - (share * rest_pi**2 - wanted) / (1 + share), 0))
    x = np.clip(root, 0, start)
    # u^2 + (rest_pi - u)^2 / SPREAD = wanted, the larger root; x = 0.
    middle = share * rest_pi / (1 + share)
    above = middle + np.sqrt(np.maximum(middle**2 - (share * rest_pi**2 - wanted) / (1 + share), 0))
    u = np.where(wanted > share * rest_pi**2, np.clip(above, 0, rest_pi), 0)
    return np.where(u > 0, 0, x), u, possible


def policies(mu_k: NDArray[np.float64], pi_k: NDArray[np.float64], b: float) -> tuple[Tensor, Tensor, Tensor]:
    """(mu, pi) [..., 3 + SPREAD] with token 0 as k and the global term -b, and where such a pair exists [...]."""
    x, u, possible = rest_masses(mu_k, pi_k, b)
    tail = np.broadcast_to(((1 - pi_k - x - u) / SPREAD)[..., None], (*mu_k.shape, SPREAD))
    pi = np.concatenate([np.stack([pi_k, x, u], -1), tail], -1)
    mu = np.concatenate([np.stack([mu_k, 1 - mu_k, np.zeros_like(mu_k)], -1), np.zeros_like(tail)], -1)
    return torch.from_numpy(mu), torch.from_numpy(pi), torch.from_numpy(possible)


def regions(b: float, side: int = SIDE) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """(axis [side], region [side, side] by pi_k and mu_k), numbers of REGIONS."""
    axis = (np.arange(side) + 0.5) / side
    mu_k, pi_k = np.meshgrid(axis, axis)
    found = np.full((side, side), EMPTY)
    for row in range(side):  # a row at a time: the whole grid would hold 100 MB of policies
        mu, pi, possible = policies(mu_k[row], pi_k[row], b)
        predicted = full_direction(FORWARD_KL, mu, pi, torch.zeros(side, dtype=torch.int64))
        outward = torch.from_numpy(pi_k[row] > mu_k[row])
        kind = torch.where(outward == (predicted > 0), AGREE, torch.where(outward, FALSE_ALARM, MISSED))
        found[row] = torch.where(possible, kind, EMPTY).numpy()
    return axis, found


def draw(output: Path, seed: int) -> None:
    """Four panels, one per global term."""
    note = (
        "Step on token k with A > 0 (for A < 0 exchange outward and inward), forward KL. Global term "
        "-b = <pi, mu> - sum of pi^2; the derivative is pi_k - mu_k - b (arXiv 2607.10848, Eqs. 7-9 [S]), so the two "
        "disagree exactly between pi_k = mu_k and pi_k = mu_k + b [N]. "
        f"[S] {MARKS['S']}, [N] {MARKS['N']}."
    )
    figure, grid = new_figure(1, len(GLOBAL_TERMS), (12.6, 4.2), small_print(note, 12.6))
    for axes, term in zip(grid[0], GLOBAL_TERMS, strict=True):
        axis, found = regions(-term)
        axes.set_facecolor(REGIONS[EMPTY][0])
        for inside, kind in ((found != EMPTY, AGREE), (found == FALSE_ALARM, FALSE_ALARM), (found == MISSED, MISSED)):
            axes.contourf(axis, axis, inside.astype(float), levels=[0.5, 1.5], colors=[REGIONS[kind][0]])
        axes.plot([0, 1], [0, 1], color=INK, linewidth=1.0)
        axes.axline((0.5, 0.5 - term), slope=1, color=INK, linewidth=1.0, linestyle=(0, (3, 2)))
        axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel=r"$\mu_k$ (rollout)")
        axes.set_title(f"global term {term:+.2f}".replace("-", "−"))
        axes.grid(color=GRID, linewidth=0.4)
    grid[0][0].set_ylabel(r"$\pi_k$ (current)")
    handles = [Patch(facecolor=colour, edgecolor=INK, linewidth=0.5, label=text) for colour, text in REGIONS]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False)
    save(figure, output, {"Title": "Where ratio and derivative disagree", "Description": note})


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw; 0, or 2 after one line that says what is wrong."""
    return run("disagreement", __doc__.splitlines()[0], draw, arguments)


if __name__ == "__main__":
    sys.exit(main())
