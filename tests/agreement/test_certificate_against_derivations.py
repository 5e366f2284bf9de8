"""agreement: the shipped interval and finite step against the formulas that `derivations` proves, at 50 digits.

Covered: forward KL, float64 inputs taken as exact. Not covered: the widening by rounding, intervals of other measures
and sum pi^2 as a further input (tests/methods).
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from mpmath import mp, mpf

from agreement_rows import CASES, Exact, exact, signals
from derivations import formulas
from methods.certificate import EXACT, direction_interval
from methods.directions import TAIL_RULES
from methods.finite_step import predicted_change
from methods.measures import FORWARD_KL

TOLERANCE = 2e-13  # the shipped interval is widened by 1e-14 for its own arithmetic
SIZES = (-2.0, -0.1, 1e-6, 0.3, 5.0)


def proved_interval(position: Exact) -> tuple[mpf, mpf]:
    least = min(position.mu[token] for token in position.candidates)
    return formulas.full_interval(*position.cells, position.place, len(position.tail), least, backend="mpmath")


@pytest.mark.parametrize("case", [case for case in CASES if case != "no tail"])
def test_interval_is_the_proved_one_and_holds_the_truth(case):
    row = replace(signals(CASES[case]), sum_pi_squared=None)
    ours = direction_interval(row, FORWARD_KL, EXACT)
    compared = 0
    with mp.workdps(50):
        for place, position in enumerate(exact(CASES[case])):
            low, high = float(ours.lower[0, place]), float(ours.upper[0, place])
            truth = float(position.direction("full"))
            assert low - TOLERANCE <= truth <= high + TOLERANCE
            if position.tail:
                proved = proved_interval(position)
                assert abs(low - float(proved[0])) < TOLERANCE and abs(high - float(proved[1])) < TOLERANCE
                compared += 1
    assert compared > 0


def change(position: Exact, size: float, rule: str) -> float:
    if rule == "full":
        return float(formulas.finite_step_change(position.mu, position.pi, position.sampled, mpf(size), "mpmath"))
    mu, pi, mu_tail, pi_tail = position.cells
    rates = {
        "none": mpf(0),
        "aggregated": pi_tail,
        "uniform": pi_tail / (len(position.tail) or 1),
        "collision": position.tail_collision / pi_tail if position.tail else mpf(0),
    }
    cells = (mu, pi, mu_tail, pi_tail, position.place, mpf(size), rates[rule])
    return float(formulas.finite_step_change_topk(*cells, backend="mpmath"))


@pytest.mark.parametrize("rule", ["full", *TAIL_RULES])
@pytest.mark.parametrize("case", CASES)
def test_finite_step_is_the_proved_one(case, rule):
    rows = CASES[case].first(3)
    row = signals(rows)
    with mp.workdps(50):
        positions = exact(rows)
        for size in SIZES:
            ours = predicted_change(row, torch.full_like(row.logp_pi, size), rule)[0].tolist()
            for value, position in zip(ours, positions, strict=True):
                assert abs(value - change(position, size, rule)) < TOLERANCE * max(1.0, abs(size))


def test_the_comparison_tells_steps_from_slopes_and_rules_apart():
    rows = CASES["one candidate"].first(3)
    row = signals(rows)
    with mp.workdps(50):
        positions = exact(rows)
        for rule in ("full", *TAIL_RULES):
            ours = predicted_change(row, torch.full_like(row.logp_pi, 0.3), rule)[0].tolist()
            slopes = [0.3 * float(position.direction(rule)) for position in positions]
            assert max(abs(x - y) for x, y in zip(ours, slopes, strict=True)) > 1e6 * TOLERANCE
            for other in {"full", *TAIL_RULES} - {rule}:
                theirs = [change(position, 0.3, other) for position in positions]
                assert max(abs(x - y) for x, y in zip(ours, theirs, strict=True)) > 1e6 * TOLERANCE
