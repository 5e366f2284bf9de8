"""DRPO as shipped against its proved weight, and against the objective it comes from.

Not covered: the cap on r (none by default) and the aggregation over tokens (tests/methods).
"""

from __future__ import annotations

from itertools import product

import pytest
import torch
from mpmath import mp, mpf

from derivations import formulas
from methods import registry
from methods.catalogue.drpo import weight
from methods.signals import Signals

# Rare, usual and near-certain tokens, outward and inward moves, no move.
PROBABILITIES = (1e-6, 0.01, 0.2, 0.5, 0.9, 1 - 1e-9)
ADVANTAGES = (-1.5, 0.0, 0.5)
DELTAS = (0.04, 0.15, 2.5, 12.5)
GRID = list(product(PROBABILITIES, PROBABILITIES, ADVANTAGES))


def columns() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    mu, pi, advantage = torch.tensor(GRID, dtype=torch.float64).unbind(-1)
    return mu, pi, advantage


@pytest.mark.parametrize("delta", DELTAS)
def test_weight_is_the_proved_formula(delta):
    mu, pi, advantage = columns()
    proved = [formulas.drpo_weight(m, p, a, delta) for m, p, a in GRID]
    shipped = weight(advantage, pi.log(), mu.log(), delta)
    torch.testing.assert_close(shipped, torch.tensor(proved, dtype=torch.float64), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("delta", DELTAS)
def test_coefficient_is_the_slope_of_the_objective_in_log_pi(delta):
    """g = dJ/d log pi_k, from finite differences of the objective that `derivations` differentiates."""
    mu, pi, advantage = columns()
    method = registry.get("drpo")
    signals = Signals(pi.log()[None], mu.log()[None], advantage[None], torch.ones(1, len(GRID), dtype=torch.bool))
    shipped = method.coefficient(signals, method.configure({"delta": delta}))[0]
    with mp.workdps(50):
        h = mpf(10) ** -16

        def slope(mu_k: float, pi_k: float, a: float) -> float:
            def value(shift: mpf) -> mpf:
                moved = mpf(pi_k) * mp.exp(shift)
                return formulas.drpo_objective(mpf(mu_k), moved, mpf(a), mpf(delta), backend="mpmath")

            return float((value(h) - value(-h)) / (2 * h))

        proved = [slope(*row) for row in GRID]
    torch.testing.assert_close(shipped, torch.tensor(proved, dtype=torch.float64), rtol=1e-9, atol=1e-12)
