"""agreement: the shipped interval and finite step against the formulas that `derivations` proves, at 50 digits.

Covered: forward KL with its widening by rounding and with sum pi^2 known; of the other measures, that the interval
holds the truth. Not covered: how tight those others are, and the storage formats (tests/methods).
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from mpmath import mp, mpf

from agreement_rows import CASES, Exact, exact, signals
from derivations import formulas
from derivations.numeric import evaluate
from derivations.theorems import full_interval
from methods.certificate import CERTIFIED_MEASURES, EXACT, ROUNDINGS, Rounding, direction_interval
from methods.directions import TAIL_RULES, full_direction
from methods.finite_step import predicted_change
from methods.measures import FORWARD_KL, MEASURES

TOLERANCE = 2e-13  # the shipped interval is widened by 1e-14 for its own arithmetic
SIZES = (-2.0, -0.1, 1e-6, 0.3, 5.0)


def proved_interval(position: Exact) -> tuple[mpf, mpf]:
    least = min(position.mu[token] for token in position.candidates)
    return formulas.full_interval(*position.classes, position.place, len(position.tail), least, backend="mpmath")


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


@pytest.mark.parametrize("case", [case for case in CASES if case != "no tail"])
def test_rounding_widens_by_no_more_than_the_proved_width(case):
    """Every log-prob off by up to a: within the plain ends and their proved widths, with epsilon = e^a - 1."""
    absolute = 1e-4
    row = replace(signals(CASES[case]), sum_pi_squared=None)
    ours, plain = (direction_interval(row, FORWARD_KL, Rounding(0.0, size)) for size in (absolute, 0.0))
    compared = 0
    with mp.workdps(50):
        for place, position in enumerate(exact(CASES[case])):
            if not position.tail:
                continue
            least = min(position.mu[token] for token in position.candidates)
            classes = (*position.classes, position.place, len(position.tail), least)
            mu, pi, mu_tail, pi_tail = position.classes
            known = {"mu": mu, "pi": pi, "mu_T": mu_tail, "pi_T": pi_tail, "mu_K": least, "k": position.place}
            known |= {"m": len(mu), "n": len(position.mu)}
            low, high = (evaluate(full_interval.THEOREM.claim(end), known) for end in ("low", "high"))
            widths = formulas.interval_rounding_width(*classes, mp.expm1(mpf(absolute)), backend="mpmath")
            lower, upper = float(ours.lower[0, place]), float(ours.upper[0, place])
            assert float(low - widths[0]) - TOLERANCE <= lower < float(plain.lower[0, place])
            assert float(plain.upper[0, place]) < upper <= float(high + widths[1]) + TOLERANCE
            compared += 1
    assert compared > 0


@pytest.mark.parametrize("measure", CERTIFIED_MEASURES)
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_interval_of_every_measure_holds_the_truth(case, known, measure):
    """With sum pi^2 known or not. Where there is no tail the interval is a point: a wrong sign anywhere shows."""
    row = signals(CASES[case])
    row = row if known else replace(row, sum_pi_squared=None)
    ours, sharp = (direction_interval(row, MEASURES[measure], rounding) for rounding in (ROUNDINGS["float64"], EXACT))
    truth = full_direction(
        MEASURES[measure], CASES[case].logits_mu.softmax(-1), CASES[case].logits_pi.softmax(-1), CASES[case].sampled
    )
    assert (ours.lower[0] <= truth).all() and (truth <= ours.upper[0]).all()
    if case == "no tail":
        assert ((sharp.lower[0] - truth).abs() < TOLERANCE).all() and ((sharp.upper[0] - truth).abs() < TOLERANCE).all()


@pytest.mark.parametrize("case", ["typical", "one candidate", "flat policies"])
def test_a_known_sum_of_squares_pins_the_collision_mass(case):
    """Then only the overlap of the two tails is unknown, between its least and Cauchy-Schwarz or its largest."""
    ours = direction_interval(signals(CASES[case]), FORWARD_KL, EXACT)
    with mp.workdps(50):
        for place, position in enumerate(exact(CASES[case])):
            mu, pi, mu_tail, pi_tail = position.classes
            largest = min(mu_tail, *(position.mu[token] for token in position.candidates))
            seen = pi[position.place] - mu[position.place] + mp.fsum(p * q for p, q in zip(mu, pi, strict=True))
            seen -= mp.fsum(p * p for p in position.pi)
            least = pi_tail * max(mpf(0), mu_tail - (len(position.tail) - 1) * largest)
            most = min(pi_tail * largest, mp.sqrt(position.tail_collision * mu_tail * largest))
            assert abs(float(ours.lower[0, place]) - float(seen + least)) < TOLERANCE
            assert float(ours.upper[0, place]) <= float(seen + most) + TOLERANCE


def change(position: Exact, size: float, rule: str) -> float:
    if rule == "full":
        return float(formulas.finite_step_change(position.mu, position.pi, position.sampled, mpf(size), "mpmath"))
    mu, pi, mu_tail, pi_tail = position.classes
    rates = {
        "none": mpf(0),
        "aggregated": pi_tail,
        "uniform": pi_tail / (len(position.tail) or 1),
        "collision": position.tail_collision / pi_tail if position.tail else mpf(0),
    }
    classes = (mu, pi, mu_tail, pi_tail, position.place, mpf(size), rates[rule])
    return float(formulas.finite_step_change_topk(*classes, backend="mpmath"))


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
