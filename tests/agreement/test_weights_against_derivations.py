"""agreement: SPO, Mask-DRPO, the penalties and PPO as shipped against their proved formulas and their objectives.

DRPO has a file of its own. Not covered: caps on r, one-sided bands, aggregation over tokens (tests/methods).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from mpmath import mp, mpf
from torch import Tensor

from derivations import formulas
from methods import registry
from methods.directions import ratio_direction
from methods.masks import trust_region_keep
from methods.signals import Signals

# Rare, usual and near-certain tokens, outward and inward moves, no move; log-ratios inside the shipped limit of 20.
PROBABILITIES = (1e-6, 0.01, 0.2, 0.5, 0.9, 1 - 1e-9)
ADVANTAGES = (-1.5, 0.0, 0.5)
GRID = list(product(PROBABILITIES, PROBABILITIES, ADVANTAGES))
MU, PI, ADVANTAGE = torch.tensor(GRID, dtype=torch.float64).unbind(-1)
RADII = (0.15, 0.2, 12.5)


def tokens() -> Signals:
    return Signals(PI.log()[None], MU.log()[None], ADVANTAGE[None], torch.ones(1, len(GRID), dtype=torch.bool))


def coefficient(method: str, **options: Any) -> Tensor:
    found = registry.get(method)
    return found.coefficient(tokens(), found.configure(options))[0]


def on_grid(formula: Callable[[float, float, float], float]) -> Tensor:
    return torch.tensor([formula(*row) for row in GRID], dtype=torch.float64)


def assert_same(shipped: Tensor, proved: Tensor, where: Tensor | None = None) -> None:
    """Both are r times a difference: a few roundings of r, or of the result where that is larger."""
    close = (shipped - proved).abs() <= 1e-12 * (1 + PI / MU + proved.abs())
    assert (close if where is None else close | ~where).all()


@pytest.mark.parametrize("eps", RADII)
def test_spo_is_the_proved_weight(eps):
    proved = on_grid(lambda m, p, a: formulas.spo_weight(m, p, a, eps) * p / m * a)
    assert_same(coefficient("spo", eps=eps), proved)


def test_spo_is_the_slope_of_its_objective_in_log_pi():
    """From finite differences of the objective that `derivations` differentiates, at 50 digits."""
    with mp.workdps(50):
        h = mpf(10) ** -16

        def proved(m: float, p: float, a: float) -> float:
            up, down = (
                formulas.spo_objective(mpf(m), mpf(p) * mp.exp(shift), mpf(a), mpf("0.2"), backend="mpmath")
                for shift in (h, -h)
            )
            return float((up - down) / (2 * h))

        assert_same(coefficient("spo", eps=0.2), on_grid(proved))


@pytest.mark.parametrize("delta", RADII)
def test_mask_drpo_is_the_proved_weight(delta):
    """One radius for mask and regulariser, as the theorem has it; off its edge."""
    off = ((PI - MU).abs() - delta).abs() > 1e-9
    proved = on_grid(lambda m, p, a: formulas.mask_drpo_weight(m, p, a, delta) * p / m * a)
    assert_same(coefficient("mask_drpo", delta=delta, radius=delta), proved, off)
    inside = (PI - MU).abs() < delta
    assert_same(coefficient("mask_drpo", delta=delta, radius=delta), PI / MU * ADVANTAGE, inside & off)


@pytest.mark.parametrize(("delta", "radius"), [(0.1, 0.3), (12.5, 0.15)])
def test_mask_drpo_with_a_radius_of_its_own(delta, radius):
    """Outside the radius DRPO's proved weight, inside it none."""
    shift = (PI - MU).abs()
    shipped = coefficient("mask_drpo", delta=delta, radius=radius)
    proved = on_grid(lambda m, p, a: formulas.drpo_weight(m, p, a, delta) * p / m * a)
    outside, inside = shift > radius + 1e-9, shift < radius - 1e-9
    assert (outside & (shift < delta)).any() or (inside & (shift > delta)).any(), "the two must part the grid"
    assert_same(shipped, proved, outside)
    assert_same(shipped, PI / MU * ADVANTAGE, inside)


PENALTIES = {
    "k3": ("penalty_k3", {}),
    "reverse_kl": ("penalty_kl", {"direction": "reverse"}),
    "forward_kl": ("penalty_kl", {"direction": "forward"}),
    "tv": ("penalty_tv", {}),
}


def test_every_proved_penalty_is_shipped():
    assert set(PENALTIES) == set(formulas.PENALTIES)


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_penalty_is_the_proved_slope(penalty, weighted):
    """g = r dJ/dr, off r = 1 where TV has a kink; a weight of 0 (A = 0, weighted) is no penalty."""
    method, options = PENALTIES[penalty]
    shipped = coefficient(method, coefficient=0.3, advantage_weighted=weighted, **options)

    def proved(m: float, p: float, a: float) -> float:
        weight = 0.3 * (abs(a) if weighted else 1.0)
        return p / m * formulas.penalised_slope(penalty, p / m, a, weight)

    assert_same(shipped, on_grid(proved), (PI - MU).abs() > 1e-12 if penalty == "tv" else None)


@pytest.mark.parametrize("eps", (0.2, 0.5))
def test_ppo_is_the_slope_of_its_objective_and_a_mask_by_the_ratio(eps):
    """Theorem ppo_mask, off the band's edges: clip, and DPPO's mask with |r - 1| as divergence."""
    ratio = PI / MU
    off = ((ratio - 1).abs() - eps).abs() > 1e-9
    proved = on_grid(lambda m, p, a: p / m * formulas.ppo_slope(p / m, a, eps))
    assert_same(coefficient("ppo_clip", eps_low=eps, eps_high=eps), proved, off)
    assert_same(coefficient("ppo_clip_higher", eps_low=eps, eps_high=eps, ratio_cap=None), proved, off)
    keep = trust_region_keep(ADVANTAGE, (ratio - 1).abs(), ratio_direction(tokens())[0], eps)
    assert_same(torch.where(keep, ratio * ADVANTAGE, 0.0), proved, off)


def test_the_grid_tells_the_weights_apart():
    """Any two of these coefficients differ visibly somewhere, as do neighbouring constants."""
    shipped = [
        coefficient("spo", eps=0.2),
        coefficient("spo", eps=0.21),
        coefficient("drpo", delta=0.2),
        coefficient("mask_drpo", delta=0.2, radius=0.2),
        coefficient("ppo_clip"),
        *(coefficient(method, coefficient=0.3, **options) for method, options in PENALTIES.values()),
    ]
    for number, one in enumerate(shipped):
        for other in shipped[:number]:
            assert ((one - other).abs() > 1e-3 * (1 + PI / MU)).any()
