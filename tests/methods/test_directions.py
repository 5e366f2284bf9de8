"""Claim: a direction is the slope of its divergence along e_k - pi, and each tail rule is exact where it says so.

Slopes are central differences in plain Python, float64. Real updates move many tokens at once: that these slopes
predict them is an experiment, no test. TV is checked away from ties of mu and pi, where it has no derivative.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from methods.directions import TAIL_RULES, TailRule, full_direction, predictive_direction, reduced_direction
from methods.masks import topk_divergence
from methods.measures import L2, MEASURES, Measure
from methods.signals import sanitise
from methods.support import masses
from tests.methods import reference
from tests.methods.helpers import Rows, measure_properties, pairs_of_logits, random_rows, tensor

LOGITS = pairs_of_logits()
KINK = 1e-3
SLOPE = {"rtol": 1e-4, "atol": 1e-7}

measures = pytest.mark.parametrize("measure", MEASURES.values(), ids=list(MEASURES))


def one_row(logits: tuple[list[float], list[float]], k: int, top_k: int) -> Rows:
    mu, pi = logits
    return Rows(tensor([[mu]]), tensor([[pi]]), torch.tensor([[k]]), tensor([[1.0]]), top_k)


def smooth(measure: Measure, mu: list[float], pi: list[float]) -> bool:
    """False near a kink of the measure."""
    return measure.name != "tv" or all(abs(m - p) > KINK for m, p in zip(mu, pi, strict=True))


def direction(rows: Rows, measure: Measure, rule: TailRule) -> float:
    return predictive_direction(sanitise(rows.signals()), measure, rule).item()


def retained(rows: Rows) -> list[int]:
    return rows.tokens()[0][0].retained


def every_k(measure: Measure, mu: Tensor, pi: Tensor) -> Tensor:
    """Full direction of each token of the vocabulary, [V]."""
    ids = torch.arange(mu.shape[-1])
    return full_direction(measure, mu.expand(len(ids), -1), pi.expand(len(ids), -1), ids)


@measures
@measure_properties
@given(logits=LOGITS, data=st.data())
def test_full_direction_is_the_slope_of_the_divergence(measure: Measure, logits, data) -> None:
    mu, pi = (reference.softmax(z) for z in logits)
    assume(smooth(measure, mu, pi))
    k = data.draw(st.integers(0, len(mu) - 1))
    got = full_direction(measure, tensor(mu), tensor(pi), torch.tensor(k))
    torch.testing.assert_close(got.item(), reference.slope(measure.name, mu, logits[1], k), **SLOPE)


@measures
@measure_properties
@given(logits=LOGITS, data=st.data())
def test_collision_rule_is_the_slope_of_the_reduced_divergence(measure: Measure, logits, data) -> None:
    """The true step over the whole vocabulary, seen through S and one tail class."""
    size = len(logits[0])
    rows = one_row(logits, data.draw(st.integers(0, size - 1)), data.draw(st.integers(1, size - 2)))
    mu, pi = (reference.softmax(z) for z in logits)
    kept = retained(rows)
    rest = [i for i in range(size) if i not in kept]
    classes = [[p[i] for i in kept] + [math.fsum(p[i] for i in rest)] for p in (mu, pi)]
    assume(smooth(measure, *classes))
    want = reference.slope(measure.name, mu, logits[1], int(rows.sampled), kept)
    torch.testing.assert_close(direction(rows, measure, "collision"), want, **SLOPE)


@measures
@measure_properties
@given(logits=LOGITS, data=st.data())
def test_aggregated_rule_is_exact_for_a_tail_with_one_logit(measure: Measure, logits, data) -> None:
    """Eq. 10: an (m + 1)-way softmax whose last logit is the tail's."""
    size = len(logits[0])
    rows = one_row(logits, data.draw(st.integers(0, size - 1)), data.draw(st.integers(1, size - 2)))
    kept = retained(rows)
    mu, pi = (reference.softmax(z) for z in logits)
    merged = [[p[i] for i in kept] + [math.fsum(x for i, x in enumerate(p) if i not in kept)] for p in (mu, pi)]
    assume(smooth(measure, *merged) and merged[1][-1] > 0)
    want = reference.slope(measure.name, merged[0], [math.log(p) for p in merged[1]], kept.index(int(rows.sampled)))
    torch.testing.assert_close(direction(rows, measure, "aggregated"), want, **SLOPE)


@measures
@measure_properties
@given(logits=pairs_of_logits(2, 4), extra=st.integers(1, 5), tails=st.tuples(st.floats(-6, -1), st.floats(-6, -1)))
def test_uniform_rule_is_exact_for_even_tails(measure: Measure, logits, extra: int, tails) -> None:
    """Eq. 11: the tail's ids share one logit in each policy, below all candidates of mu.

    It holds for f-divergences, which pool classes of one quotient without loss. The l2 distance is none: pooled, n - m
    equal excesses of it count n - m times what they count apart.
    """
    head = len(logits[0])
    mu_logits = [z + 10.0 for z in logits[0]] + [tails[0]] * extra
    pi_logits = [*logits[1], *[tails[1]] * extra]
    mu, pi = reference.softmax(mu_logits), reference.softmax(pi_logits)
    assume(smooth(measure, mu, pi))
    rows = one_row((mu_logits, pi_logits), 0, head)
    want = reference.slope(measure.name, mu, pi_logits, 0)
    if measure is L2:
        excess = pi[-1] - mu[-1]
        # The pooled tail, extra^2 (pi_j - mu_j)^2 / 2, less its parts, extra (pi_j - mu_j)^2 / 2, along the same step.
        moved = -pi[-1] * (pi[-1] + pi[0] - math.fsum(p * p for p in pi))
        want += (extra**2 - extra) * excess * moved
    torch.testing.assert_close(direction(rows, measure, "uniform"), want, **SLOPE)


@measures
@measure_properties
@given(logits=LOGITS)
def test_the_mean_direction_under_pi_is_zero(measure: Measure, logits) -> None:
    """E_{k~pi}[d_k] = 0: the global term is the baseline of the local one."""
    mu, pi = (tensor(reference.softmax(z)) for z in logits)
    mean = (pi * every_k(measure, mu, pi)).sum().item()
    assert abs(mean) < 1e-12


@measures
@measure_properties
@given(logits=LOGITS, data=st.data())
def test_k_equal_to_v_is_the_full_form(measure: Measure, logits, data) -> None:
    """With nothing outside S every tail rule gives the full direction, and the reduced value the full divergence."""
    k = data.draw(st.integers(0, len(logits[0]) - 1))
    rows = one_row(logits, k, len(logits[0]))
    mu, pi = (tensor(reference.softmax(z)) for z in logits)
    want = full_direction(measure, mu, pi, torch.tensor(k)).item()
    for rule in TAIL_RULES:
        assert math.isclose(direction(rows, measure, rule), want, abs_tol=1e-10), rule
    reduced = topk_divergence(sanitise(rows.signals()), measure).item()
    assert math.isclose(reduced, measure.value(mu, pi).item(), abs_tol=1e-10)


@measures
def test_identical_policies_have_no_direction(measure: Measure) -> None:
    for seed in range(3):
        rows = random_rows(seed, drift=0.0)
        signals = sanitise(rows.signals())
        for rule in TAIL_RULES:
            assert predictive_direction(signals, measure, rule).abs().max() < 1e-14, rule
        mu = rows.logits_mu.softmax(-1)
        assert full_direction(measure, mu, mu, rows.sampled).abs().max() == 0
        assert measure.value(mu, mu).abs().max() == 0


@measures
@measure_properties
@given(logits=LOGITS, data=st.data())
def test_uniform_and_aggregated_bracket_the_collision_rule(measure: Measure, logits, data) -> None:
    size = len(logits[0])
    rows = one_row(logits, data.draw(st.integers(0, size - 1)), data.draw(st.integers(1, size - 2)))
    uniform, exact, aggregated = (direction(rows, measure, r) for r in ("uniform", "collision", "aggregated"))
    assert min(uniform, aggregated) - 1e-12 <= exact <= max(uniform, aggregated) + 1e-12


@measures
@measure_properties
@given(logits=pairs_of_logits(2, 2), k=st.integers(0, 1))
def test_two_outcomes_leave_the_ratio_nothing_to_miss(measure: Measure, logits, k: int) -> None:
    """For V = 2 every divergence moves the way the sampled ratio says."""
    mu, pi = (tensor(reference.softmax(z)) for z in logits)
    moved = (pi[k] - mu[k]).item()
    assume(abs(moved) > 1e-6 and min(pi) > 1e-6)
    assert math.copysign(1, full_direction(measure, mu, pi, torch.tensor(k)).item()) == math.copysign(1, moved)


def test_uniform_divides_by_the_real_ids_outside_the_support() -> None:
    """66 real ids under a head of 128: with S of two the divisor is 64; pads of the head are no ids."""
    rows = one_row(([3.0, 2.0] + [0.0] * 64, [2.0, 3.0] + [0.0] * 64), 0, 2)
    classes = masses(sanitise(rows.signals()).support, 66)
    assert classes.unseen.item() == 64
    gap = direction(rows, MEASURES["forward_kl"], "none") - direction(rows, MEASURES["forward_kl"], "uniform")
    want = -classes.pi_tail * (classes.mu_tail - classes.pi_tail) / 64
    assert math.isclose(gap, want.item(), abs_tol=1e-14)


def test_a_rule_that_lacks_its_input_says_so() -> None:
    signals = sanitise(random_rows(0).signals(sum_pi_squared=None, vocab_size=None))
    measure = MEASURES["forward_kl"]
    with pytest.raises(ValueError, match="sum_pi_squared"):
        predictive_direction(signals, measure, "collision")
    with pytest.raises(ValueError, match="vocab_size"):
        predictive_direction(signals, measure, "uniform")
    with pytest.raises(ValueError, match="none, aggregated, uniform, collision"):
        predictive_direction(signals, measure, "even")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="top_k"):
        predictive_direction(sanitise(random_rows(0).signals(support=None)), measure, "none")


def test_a_full_view_without_its_inputs_says_so() -> None:
    """Both distributions and the sampled ids; an id outside the vocabulary is named with its position."""
    signals = sanitise(random_rows(0).signals())
    measure = MEASURES["tv"]
    for lacking in ("full", "sampled"):
        with pytest.raises(ValueError, match=f"signals.{lacking} is missing"):
            predictive_direction(replace(signals, **{lacking: None}), measure, "full")
    for bad in (12, -1):
        ids = signals.sampled.clone()
        ids[1, 2] = bad
        with pytest.raises(ValueError, match=rf"signals.sampled\[1, 2\] = {bad}: allowed are 0 to 11"):
            predictive_direction(replace(signals, sampled=ids), measure, "full")


def test_collision_mass_is_kept_between_zero_and_one_merged_token() -> None:
    """Rounding of two nearly equal sums may leave that range; the rule then takes its edge."""
    signals = sanitise(random_rows(0).signals())
    classes, measure = masses(signals.support, signals.vocab_size), MEASURES["forward_kl"]
    slots = torch.zeros_like(signals.support.ids[..., 0])

    def at(total: Tensor) -> Tensor:
        return reduced_direction(measure, classes, slots, "collision", total)

    inside = classes.pi.square().sum(-1)
    torch.testing.assert_close(at(inside - 1e-3), reduced_direction(measure, classes, slots, "none"))
    torch.testing.assert_close(at(inside + 2.0), reduced_direction(measure, classes, slots, "aggregated"))
