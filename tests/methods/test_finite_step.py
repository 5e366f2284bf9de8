"""Claim: a finite step's change of the forward KL is exact where the tail rule says so, for steps of every size.

Against the divergence of the moved softmax in plain Python, float64. That real updates, which move many tokens at
once, have some effective step size is not covered.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from methods.directions import TAIL_RULES, TAILS, Tail, predictive_direction
from methods.finite_step import SMALL_STEP, finite_change, predicted_change
from methods.masks import capped_ratio, topk_divergence
from methods.measures import FORWARD_KL
from methods.signals import sanitise
from tests.methods import reference, reference_masks
from tests.methods.helpers import Line, Rows, changed, pairs_of_logits, properties, random_rows, tensor

SIZES = (-30.0, -1.5, -1.0, -0.3, -1e-6, 0.0, 1e-6, 0.3, 1.0, 1.5, 30.0)


def g(signals, **options) -> torch.Tensor:
    return Line("predictive_finite_step", options, None).coefficient(signals)


@pytest.mark.parametrize("tail", TAILS)
def test_change_equals_the_formula(tail: Tail) -> None:
    """Small, middle and large steps of both signs, on both sides of the switch between the two ways to sum."""
    rows = random_rows(0)
    for size in SIZES:
        want = [[reference_masks.change(token, size, tail) for token in row] for row in rows.tokens()]
        got = predicted_change(sanitise(rows.signals()), torch.full_like(rows.advantages, size), tail)
        torch.testing.assert_close(got, tensor(want), rtol=1e-8, atol=1e-13 + 1e-15 * abs(size))


@properties
@given(logits=pairs_of_logits(), size=st.floats(-20, 20), data=st.data())
def test_full_change_is_that_of_the_moved_softmax(logits, size: float, data) -> None:
    k = data.draw(st.integers(0, len(logits[0]) - 1))
    mu, pi = (reference.softmax(z) for z in logits)
    after = reference.softmax([z + size * ((i == k) - pi[i]) for i, z in enumerate(logits[1])])
    want = reference.divergence("forward_kl", mu, after) - reference.divergence("forward_kl", mu, pi)
    move = -tensor(pi)
    move[k] += 1
    got = finite_change(tensor(mu), tensor(pi), move, tensor(size)).item()
    assert math.isclose(got, want, rel_tol=1e-9, abs_tol=1e-11)


@pytest.mark.parametrize("extra", [1, 2, 7])
@pytest.mark.parametrize("size", [-2.0, 0.4, 3.0])
def test_uniform_is_exact_for_even_tails_and_aggregated_for_one_id(extra: int, size: float) -> None:
    """Two candidates above `extra` ids of one logit in each policy: the change of the full divergence itself."""
    mu = [3.0, 2.0] + [-1.0] * extra
    pi = [2.0, 2.5] + [0.5] * extra
    rows = Rows(tensor([[mu]]), tensor([[pi]]), torch.tensor([[1]]), tensor([[1.0]]), 2)
    signals = sanitise(rows.signals())
    change = {tail: predicted_change(signals, tensor([[size]]), tail).item() for tail in TAILS}
    assert math.isclose(change["uniform"], change["full"], rel_tol=1e-10)
    assert math.isclose(change["aggregated"], change["full"], rel_tol=1e-10) == (extra == 1)


@pytest.mark.parametrize("tail", TAILS)
def test_small_steps_follow_the_direction(tail: Tail) -> None:
    """dD(c) / c is the predicted direction as c goes to zero: the tail's rate is the same one."""
    signals = sanitise(random_rows(1).signals())
    size = 1e-7
    got = predicted_change(signals, torch.full_like(signals.advantages, size), tail) / size
    torch.testing.assert_close(got, predictive_direction(signals, FORWARD_KL, tail), rtol=1e-6, atol=1e-7)


@properties
@given(seed=st.integers(0, 5), size=st.floats(-10, 10))
def test_a_predicted_increase_is_certain(seed: int, size: float) -> None:
    """Convexity: the change is never below the tangent, whatever the tail rule."""
    signals = sanitise(random_rows(seed, batch=2).signals())
    sizes = torch.full_like(signals.advantages, size)
    for tail in TAILS:
        tangent = size * predictive_direction(signals, FORWARD_KL, tail)
        assert (predicted_change(signals, sizes, tail) >= tangent - 1e-12).all(), tail


@pytest.mark.parametrize("tail", TAILS)
def test_no_step_is_too_large(tail: Tail) -> None:
    """c = 5e8, the largest capped log-ratio times one: finite, and linear in c as the softmax saturates."""
    for dtype in (torch.float32, torch.float64):
        signals = changed(random_rows(0).signals(), lambda value, dtype=dtype: value.to(dtype))
        signals = sanitise(signals)
        for size in (-5e8, 5e8):
            change = predicted_change(signals, torch.full_like(signals.advantages, size), tail)
            assert torch.isfinite(change).all() and change.dtype == dtype
    assert torch.isfinite(g(signals, step=1e6, ratio_cap=None, tail=tail)).all()


@pytest.mark.parametrize("size", [-3.0, 0.5, 3.0])
def test_a_shift_of_all_logits_changes_nothing(size: float) -> None:
    """Also where rounding left the masses of a large step short of one (a small one counts the rest as unmoved)."""
    mu, ones = tensor([0.6, 0.4]), tensor([1.0, 1.0])
    for pi in (tensor([0.5, 0.5]), tensor([0.5, 0.49])) if abs(size) > SMALL_STEP else (tensor([0.5, 0.5]),):
        assert abs(finite_change(mu, pi, ones, tensor(size)).item()) < 1e-12


def test_the_two_ways_to_sum_agree_where_they_meet() -> None:
    signals = sanitise(random_rows(2).signals())
    below = predicted_change(signals, torch.full_like(signals.advantages, SMALL_STEP), "full")
    above = predicted_change(signals, torch.full_like(signals.advantages, math.nextafter(SMALL_STEP, 2)), "full")
    torch.testing.assert_close(below, above, rtol=1e-11, atol=1e-13)


def test_the_mask_drops_what_would_end_outside_and_farther() -> None:
    """By hand out of D and dD, for both signs of A, each of the four cases present."""
    seen = set()
    for seed in range(4):
        signals = sanitise(random_rows(seed).signals())
        size = 0.5 * signals.advantages * capped_ratio(signals, 5.0)
        before = topk_divergence(signals, FORWARD_KL)
        change = predicted_change(signals, size, "uniform")
        ends_outside, farther = before + change > 0.15, change > 0
        dropped = g(signals, step=0.5) == 0
        active = signals.advantages != 0
        assert torch.equal(dropped[active], (ends_outside & farther)[active])
        columns = (signals.advantages > 0, before > 0.15, ends_outside, farther)
        seen |= {tuple(case) for case in torch.stack([column[active] for column in columns], -1).tolist()}
    for positive in (True, False):
        # From outside and from inside to outside, and outside but nearer.
        for case in ((True, True, True), (False, True, True), (True, True, False)):
            assert (positive, *case) in seen


@pytest.mark.parametrize("tail", TAILS)
def test_as_the_step_vanishes_it_is_the_predictive_mask(tail: Tail) -> None:
    for seed in range(3):
        signals = random_rows(seed).signals()
        predictive = Line("predictive", {"tail": tail}, None).coefficient(signals)
        assert torch.equal(g(signals, step=1e-9, tail=tail), predictive)
        assert not torch.equal(g(signals, step=3.0, tail=tail), predictive)


def test_identical_policies_lose_a_token_only_if_its_step_leaves_the_region() -> None:
    """At mu = pi the slope is zero and every step moves out, by c^2 Var(u) / 2: small ones stay inside."""
    rows = random_rows(0, drift=0.0)
    assert torch.equal(g(rows.signals()), rows.advantages)
    assert (g(replace(rows, advantages=rows.advantages.clamp(min=1.0)).signals(), step=20.0) == 0).all()


def test_a_rule_that_lacks_its_input_says_so() -> None:
    signals = sanitise(random_rows(0).signals(sum_pi_squared=None, full=None))
    with pytest.raises(ValueError, match="sum_pi_squared"):
        predicted_change(signals, signals.advantages, "collision")
    with pytest.raises(ValueError, match="signals.full"):
        predicted_change(signals, signals.advantages, "full")
    assert set(TAILS) == {*TAIL_RULES, "full"}
