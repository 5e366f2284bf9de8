"""The numeric functions give the values worked out by hand, and say what is wrong with bad input."""

from __future__ import annotations

from fractions import Fraction

import pytest
from mpmath import mp, mpf

from derivations import formulas


def test_direction_full_by_hand():
    # local 0.45 - 0.4 = 0.05; global 0.45(-0.05) + 0.5(-0.2) + 0.05(0.25) = -0.0225 - 0.1 + 0.0125 = -0.11
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
        # local 0.05, retained 0.45(-0.05) + 0.35(-0.15) = -0.075; tail 0.2 * 0.2 = 0.04, over 8 tokens 0.005
        ("aggregated", 0.015),
        ("uniform", -0.02),
        ("none", -0.025),
        # (mu_T - pi_T) c2 / pi_T = 0.2 * 0.01 / 0.2 = 0.01
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
    # 0.5 log(5/4) + 0.3 log(3/4) + 0
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
    # r = 2, A = -3: -6 - 3 * 0.1 * 1 / (2 * 0.5) = -6.3
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


@pytest.mark.parametrize("measure", formulas.MEASURES)
def test_slope_of_every_measure_averages_to_zero_under_pi(measure):
    mu, pi = [0.31, 0.27, 0.19, 0.14, 0.09], [0.22, 0.34, 0.17, 0.18, 0.0901]
    pi = [p / sum(pi) for p in pi]
    slopes = [formulas.direction_full(mu, pi, k, measure=measure) for k in range(5)]
    assert max(map(abs, slopes)) > 1e-3
    assert sum(p * s for p, s in zip(pi, slopes, strict=True)) == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize("measure", formulas.MEASURES)
def test_tail_of_one_token_is_no_reduction(measure):
    """All rules that know c2, here pi_T^2, give the full slope; the divergence itself is the full one."""
    mu, pi = [0.5, 0.3, 0.2], [0.4, 0.45, 0.15]
    full = formulas.direction_full(mu, pi, 1, measure=measure)
    for rule in ("aggregated", "uniform", "collision"):
        got = formulas.direction_topk(mu[:2], pi[:2], 0.2, 0.15, 1, 1, rule, 0.15**2, measure=measure)
        assert got == pytest.approx(full, abs=1e-15)
    reduced = formulas.divergence_topk(measure, mu[:2], pi[:2], 0.2, 0.15)
    assert reduced == pytest.approx(formulas.divergence(measure, mu, pi), abs=1e-15)


@pytest.mark.parametrize("measure", formulas.MEASURES)
def test_two_tokens_are_a_binary_measure(measure):
    mu, pi = [0.3, 0.7], [0.4, 0.6]
    assert formulas.divergence_binary(measure, 0.3, 0.4) == pytest.approx(formulas.divergence(measure, mu, pi))
    slope = formulas.direction_binary(measure, 0.3, 0.4, 0.16 + 0.36)
    assert slope == pytest.approx(formulas.direction_full(mu, pi, 0, measure=measure), abs=1e-15)


@pytest.mark.parametrize(
    ("measure", "value", "direction"),
    [
        # mu = (1/2, 1/2), pi = (3/4, 1/4), k = 0; u = (1/4, -1/4), d pi_0 = 3/4 (1/4 - 1/8) = 3/32
        ("tv", 1 / 4, 3 / 32),
        ("chi2_pearson", 1 / 4, 2 * (1 / 4) / (1 / 4) * 3 / 32),
        ("chi2_neyman", 1 / 12 + 1 / 4, (4 - 4 / 9) * 3 / 32),
        ("l2", 1 / 16, 2 * (1 / 4) * 3 / 32),
        ("forward_kl", 0.143841036, (1 / 4) / (3 / 16) * 3 / 32),
        ("reverse_kl", 0.130812035, 1.0986122887 * 3 / 32),
    ],
)
def test_measures_by_hand(measure, value, direction):
    mu, pi = [0.5, 0.5], [0.75, 0.25]
    assert formulas.divergence(measure, mu, pi) == pytest.approx(value, abs=1e-9)
    assert formulas.direction_full(mu, pi, 0, measure=measure) == pytest.approx(direction, abs=1e-9)


def test_interval_by_hand():
    # seen: 0.45 - 0.4 + 0.45(-0.05) + 0.35(-0.15) = -0.025; tail mu 0.4, pi 0.2 on 8 tokens, each mu at most 0.2
    low, high = formulas.full_interval([0.4, 0.2], [0.45, 0.35], 0.4, 0.2, 0, 8, 0.2)
    # least overlap 0, c2 up to 0.04; largest overlap 0.2 * 0.2 = 0.04, c2 from 0.005: 0.035; the sharp limit:
    # q = 0.4 * 0.2 = 0.08, q / 4 = 0.02 lies in [0.005, 0.04] and is itself the limit, below 0.035
    assert (low, high) == (pytest.approx(-0.065), pytest.approx(-0.005))


def test_finite_step_by_hand():
    # two tokens, pi = (1/2, 1/2), u = (1/2, -1/2), c = 2: log cosh(1) - 2 (mu_0 - 1/2), mu_0 = 3/4
    change = formulas.finite_step_change([0.75, 0.25], [0.5, 0.5], 0, 2.0)
    assert change == pytest.approx(0.4337808304 - 0.5, abs=1e-9)
    assert formulas.curvature([0.75, 0.25], [0.5, 0.5], 0) == pytest.approx(0.25)  # variance of u
    merged = formulas.finite_step_change_topk([0.75], [0.5], 0.25, 0.5, 0, 2.0, 0.5)
    assert merged == pytest.approx(change)


@pytest.mark.parametrize(
    ("call", "value"),
    [
        (lambda: formulas.spo_weight(0.2, 0.25, 1.0, 0.5), 0.5),  # r = 1.25: outward by half of eps
        (lambda: formulas.spo_weight(0.2, 0.25, -1.0, 0.5), 1.5),
        (lambda: formulas.spo_objective(0.2, 0.3, -2.0, 0.25), -3 - 2 * 0.25 / 0.5),
        (lambda: formulas.mask_drpo_weight(0.2, 0.3, 1.0, 0.15), 1.0),  # inside
        (lambda: formulas.mask_drpo_weight(0.2, 0.5, 1.0, 0.15), -1.0),  # outside, outward by 2 delta
        (lambda: formulas.mask_drpo_weight(0.2, 0.5, -1.0, 0.15), 3.0),
        (lambda: formulas.ppo_slope(1.3, 1.0, 0.2), 0.0),
        (lambda: formulas.ppo_slope(1.3, -1.0, 0.2), -1.0),
        (lambda: formulas.ppo_slope(0.7, -1.0, 0.2), 0.0),
        (lambda: formulas.ppo_slope(1.1, 1.0, 0.2), 1.0),
        (lambda: formulas.penalised_slope("k3", 2.0, 1.0, 0.5), 0.75),
        (lambda: formulas.penalised_slope("forward_kl", 2.0, 1.0, 0.5), 1.25),
        (lambda: formulas.penalised_slope("reverse_kl", 1.0, 1.0, 0.5), 0.5),
        (lambda: formulas.penalised_slope("tv", 2.0, 1.0, 0.5), 0.75),
    ],
)
def test_weights_by_hand(call, value):
    assert call() == pytest.approx(value, abs=1e-14)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: formulas.divergence("kl", [1.0], [1.0]), "measure is 'kl', allowed are forward_kl"),
        (lambda: formulas.penalised_slope("k1", 1.0, 1.0, 1.0), "penalty is 'k1', allowed are k3"),
        (
            lambda: formulas.direction_topk([0.5], [1.0], 0.5, 0.0, 0, 2, "uniform", measure="tv"),
            "pi_T is 0.0: for tv both are 0 or both are positive",
        ),
    ],
)
def test_unknown_names_and_half_empty_tails_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
