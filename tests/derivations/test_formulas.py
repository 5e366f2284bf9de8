"""The numeric functions give the values worked out by hand, and say what is wrong with bad input."""

from __future__ import annotations

from fractions import Fraction

import pytest
from mpmath import mp, mpf

from derivations import formulas


def test_direction_full_by_hand():
    # local .45 - .4 = .05; global .45(-.05) + .5(-.2) + .05(.25) = -.0225 - .1 + .0125 = -.11
    assert formulas.direction_full([0.4, 0.3, 0.3], [0.45, 0.5, 0.05], 0) == pytest.approx(-0.06, abs=1e-15)


def test_direction_full_is_exact_in_rational_numbers():
    mu, pi = [Fraction(4, 10), Fraction(3, 10), Fraction(3, 10)], [Fraction(45, 100), Fraction(1, 2), Fraction(5, 100)]
    assert formulas.direction_full(mu, pi, 0) == Fraction(-6, 100)


def test_direction_full_averages_to_zero_under_pi():
    mu, pi = [0.31, 0.27, 0.19, 0.14, 0.09], [0.22, 0.34, 0.17, 0.18, 0.09]
    assert sum(p * formulas.direction_full(mu, pi, k) for k, p in enumerate(pi)) == pytest.approx(0, abs=1e-16)


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        # local .05, retained .45(-.05) + .35(-.15) = -.075; tail .2 * .2 = .04, over 8 tokens .005
        ("aggregated", 0.015),
        ("uniform", -0.02),
        ("none", -0.025),
        # (mu_T - pi_T) c2 / pi_T = .2 * .01 / .2 = .01
        ("collision", -0.015),
    ],
)
def test_direction_topk_by_hand(rule, value):
    got = formulas.direction_topk([0.4, 0.2], [0.45, 0.35], 0.4, 0.2, 0, 8, rule, tail_collision=0.01)
    assert got == pytest.approx(value, abs=1e-15)


@pytest.mark.parametrize("rule", formulas.RULES)
def test_empty_tail_gives_the_full_direction(rule):
    mu, pi = [0.5, 0.3, 0.2], [0.4, 0.4, 0.2]
    got = formulas.direction_topk(mu, pi, 0.0, 0.0, 1, 1, rule, tail_collision=0.0)
    assert got == pytest.approx(formulas.direction_full(mu, pi, 1), abs=1e-15)


def test_divergences_by_hand():
    # .5 log(5/4) + .3 log(3/4) + 0
    assert formulas.forward_kl([0.5, 0.3, 0.2], [0.4, 0.4, 0.2]) == pytest.approx(0.0252671539, abs=1e-9)
    assert formulas.forward_kl_topk([0.5, 0.3], [0.4, 0.4], 0.2, 0.2) == pytest.approx(0.0252671539, abs=1e-9)


@pytest.mark.parametrize(
    ("mu_k", "pi_k", "advantage", "weight"),
    [
        (0.2, 0.35, 1.0, 0.0),  # outward by delta: the edge
        (0.2, 0.275, 1.0, 0.5),  # outward by delta / 2
        (0.2, 0.5, 2.0, -1.0),  # outward by 2 delta: pulls back
        (0.2, 0.275, -1.0, 1.5),  # A < 0 moving up is inward
        (0.2, 0.2, 1.0, 1.0),
        (0.2, 0.275, 0.0, 1.0),  # sign(0) = 0
    ],
)
def test_drpo_weight_by_hand(mu_k, pi_k, advantage, weight):
    assert formulas.drpo_weight(mu_k, pi_k, advantage, 0.15) == pytest.approx(weight, abs=1e-14)


def test_drpo_objective_by_hand():
    # r = 2, A = -3: -6 - 3 * .1 * 1 / (2 * .5) = -6.3
    assert formulas.drpo_objective(0.1, 0.2, -3.0, 0.5) == pytest.approx(-6.3, abs=1e-14)


def test_mpmath_backend_keeps_its_digits():
    with mp.workdps(40):
        third = mpf(1) / 3
        value = formulas.direction_topk([third], [third / 2], 2 * third, mpf(5) / 6, 0, 3, "uniform", backend="mpmath")
        # local -1/6; retained (1/6)(1/6); tail (5/6)(-1/6)/3
        assert abs(value - (-mpf(1) / 6 + mpf(1) / 36 - mpf(5) / 108)) < mpf(10) ** -38
        weight = formulas.drpo_weight(third, third / 2, mpf(1), mpf(2), backend="mpmath")
        assert abs(weight - (1 + mpf(1) / 12)) < mpf(10) ** -38


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: formulas.direction_full([0.5, 0.5], [1.0], 0), "mu has 2 entries, pi has 1"),
        (lambda: formulas.direction_full([0.5, 0.5], [0.5, 0.5], 2), "place is 2, allowed are 0 to 1"),
        (lambda: formulas.direction_full([0.5, 0.5], [0.5, 0.5], -1), "place is -1"),
        (lambda: formulas.direction_topk([0.5], [0.5], 0.5, 0.5, 0, 3, "mean"), "'mean', allowed are aggregated"),
        (lambda: formulas.direction_topk([0.5], [0.5], 0.5, 0.5, 0, 0, "uniform"), "n_minus_m is 0"),
        (lambda: formulas.direction_topk([0.5], [0.5], 0.5, 0.5, 0, 3, "collision"), "needs tail_collision"),
        (lambda: formulas.drpo_weight(0.5, 0.5, 1.0, 1.0, backend="numpy"), "backend is 'numpy', allowed are"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
