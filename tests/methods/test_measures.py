"""Claim: the nine measures, reduced or binary, are what their names say, and their directions are their derivatives.

Against autograd along e_k - pi and against closed forms in plain Python, float64. Zeros and ones, underflow and the
rounding of tails are here too. Values over the whole vocabulary: test_definitions.py; slopes by differences:
test_directions.py. Which measure trains best is not covered.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from methods.directions import (
    TAIL_RULES,
    TAILS,
    full_direction,
    predictive_direction,
    ratio_direction,
    reduced_direction,
)
from methods.masks import divergence, topk_divergence
from methods.measures import BINARY_MEASURES, L2, MEASURES, Measure, binary_kl, reduced_value
from methods.signals import sanitise
from methods.support import FILLER_ID, Masses, masses
from tests.methods import reference, reference_masks
from tests.methods.helpers import Rows, changed, measure_properties, pairs_of_logits, random_rows, tensor

EXACT = {"rtol": 1e-9, "atol": 1e-11}
every_measure = pytest.mark.parametrize("measure", MEASURES.values(), ids=list(MEASURES))


def test_the_names() -> None:
    names = ["forward_kl", "reverse_kl", "tv", "jeffreys", "js", "hellinger2", "chi2_pearson", "chi2_neyman", "l2"]
    assert list(MEASURES) == names and [measure.name for measure in MEASURES.values()] == names
    assert set(BINARY_MEASURES) == {"binary_kl", *(f"binary_{name}" for name in names if name != "forward_kl")}


@every_measure
@pytest.mark.parametrize("tail", TAILS)
def test_directions_equal_their_closed_forms(measure: Measure, tail: str) -> None:
    rows = random_rows(1)
    want = [[reference_masks.direction(token, measure.name, tail) for token in row] for row in rows.tokens()]
    torch.testing.assert_close(predictive_direction(sanitise(rows.signals()), measure, tail), tensor(want), **EXACT)


def stepped(rows: Rows, size: Tensor) -> Tensor:
    """pi after the logit step size (e_k - pi), [B, T, V]; differentiable in size [B, T]."""
    pi = rows.logits_pi.softmax(-1)
    step = torch.nn.functional.one_hot(rows.sampled, pi.shape[-1]) - pi
    return (rows.logits_pi + size.unsqueeze(-1) * step).softmax(-1)


def slope(rows: Rows, value) -> Tensor:
    """d value(pi) / d size at 0 by autograd, [B, T]."""
    size = torch.zeros_like(rows.advantages, requires_grad=True)
    (gradient,) = torch.autograd.grad(value(stepped(rows, size)).sum(), size)
    return gradient


@every_measure
@pytest.mark.parametrize("seed", range(2))
def test_full_direction_is_the_derivative_along_the_step(measure: Measure, seed: int) -> None:
    rows = random_rows(seed)
    mu, pi = rows.logits_mu.softmax(-1), rows.logits_pi.softmax(-1)
    want = slope(rows, lambda moved: measure.value(mu, moved))
    torch.testing.assert_close(full_direction(measure, mu, pi, rows.sampled), want, **EXACT)


@every_measure
@pytest.mark.parametrize("seed", range(2))
def test_collision_rule_is_the_derivative_of_the_reduced_measure(measure: Measure, seed: int) -> None:
    rows = random_rows(seed)
    signals = sanitise(rows.signals())
    classes = masses(signals.support)

    def value(moved: Tensor) -> Tensor:
        kept = torch.where(signals.support.valid, moved.gather(-1, signals.support.ids), 0.0)
        return reduced_value(measure, classes.mu, kept, classes.mu_tail, 1 - kept.sum(-1))

    torch.testing.assert_close(predictive_direction(signals, measure, "collision"), slope(rows, value), **EXACT)


@every_measure
def test_value_passes_gradcheck(measure: Measure) -> None:
    """In the logits of pi, and the written-out gradient is the analytic one at unequal masses."""
    rows = random_rows(2, batch=1, length=3, vocab=5, top_k=2)
    mu, logits = rows.logits_mu.softmax(-1), rows.logits_pi.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda z: measure.value(mu, z.softmax(-1)), (logits,))
    (want,) = torch.autograd.grad(measure.value(mu, logits.softmax(-1)).sum(), logits)
    torch.testing.assert_close(measure.logit_gradient(mu, logits.detach().softmax(-1)), want, **EXACT)


@every_measure
@measure_properties
@given(logits=pairs_of_logits(3, 8), top_k=st.integers(1, 3), k=st.integers(0, 2))
def test_reducing_never_raises_a_measure(measure: Measure, logits, top_k: int, k: int) -> None:
    """True of every f-divergence; the l2 distance is none, and may rise."""
    rows = Rows(tensor([[logits[0]]]), tensor([[logits[1]]]), torch.tensor([[k]]), tensor([[1.0]]), top_k)
    signals = sanitise(rows.signals())
    full = divergence(signals, measure.name, full=True).item()
    if measure is not L2:
        assert topk_divergence(signals, measure).item() <= full * (1 + 1e-9) + 1e-12


def test_reducing_may_raise_the_l2_distance() -> None:
    """Two unseen ids that both gain 0.1: 0.5 (0.2^2 + 0.2^2) = 0.04 pooled, 0.5 (0.2^2 + 2 (0.1)^2) = 0.03 apart."""
    mu, pi = tensor([[[0.6, 0.2, 0.2]]]).log(), tensor([[[0.4, 0.3, 0.3]]]).log()
    signals = sanitise(Rows(mu, pi, torch.tensor([[0]]), tensor([[1.0]]), 1).signals())
    assert topk_divergence(signals, L2).item() == pytest.approx(0.04)
    assert divergence(signals, "l2", full=True).item() == pytest.approx(0.03)


@pytest.mark.parametrize("name", sorted(BINARY_MEASURES))
def test_binary_forms_are_the_two_outcome_measures(name: str) -> None:
    grid = [1e-6, 0.01, 0.3, 0.5, 0.9, 1 - 1e-6]
    measure = {"binary_kl": "forward_kl"}.get(name, name.removeprefix("binary_"))
    for mu in grid:
        for pi in grid:
            want = reference.divergence(measure, [mu, 1 - mu], [pi, 1 - pi])
            got = BINARY_MEASURES[name](tensor(mu).log(), tensor(pi).log()).item()
            assert got == pytest.approx(want, rel=1e-8, abs=1e-12), (mu, pi)


@every_measure
def test_a_binary_measure_moves_as_the_ratio_says(measure: Measure) -> None:
    """Its derivative along the true step has the sign of r - 1.

    So has the predicted direction of a support that holds the sampled token alone, under every tail rule.
    """
    rows = random_rows(4)
    signals = rows.signals()
    outward = torch.sign(ratio_direction(signals))
    place = rows.sampled.unsqueeze(-1)
    name = "binary_kl" if measure.name == "forward_kl" else f"binary_{measure.name}"
    derivative = slope(rows, lambda pi: BINARY_MEASURES[name](signals.logp_mu, pi.gather(-1, place).squeeze(-1).log()))
    assert torch.equal(torch.sign(derivative), outward)
    ids = torch.full_like(signals.support.ids, FILLER_ID)
    ids[..., -1] = rows.sampled
    alone = sanitise(replace(signals, support=replace(signals.support, ids=ids, valid=ids >= 0)))
    for rule in TAIL_RULES:
        assert torch.equal(torch.sign(predictive_direction(alone, measure, rule)), outward), rule
    torch.testing.assert_close(topk_divergence(alone, measure), divergence(signals, name), rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("name", ["chi2_pearson", "chi2_neyman"])
def test_a_tail_of_pure_rounding_is_no_distance(name: str) -> None:
    """A quotient of two rounding errors: equal policies whose retained masses sum to 1 and to 1 - 2^-23 in float32.

    A real loss of mass stays far: pi keeps 0.01 in a tail that mu leaves empty, 0.01 (0.01 / 9.5e-7) = 105.
    """
    support = torch.tensor([0.5, 0.5])
    rounded = torch.tensor([0.5, 0.5 - 2.0**-23])
    none, left = torch.tensor(0.0), torch.tensor(2.0**-23)
    for mu, pi, tails in ((support, rounded, (none, left)), (rounded, support, (left, none))):
        assert reduced_value(MEASURES[name], mu, pi, *tails) < 1e-6
        raw = [torch.cat([p, tail[None]]) for p, tail in zip((mu, pi), tails, strict=True)]
        assert max(MEASURES[name].value(*raw), MEASURES[name].value(*reversed(raw))) > 1e6
    lost = torch.tensor([0.5, 0.49])
    sides = (support, lost, none, torch.tensor(0.01))
    assert reduced_value(MEASURES["chi2_pearson"], *sides) > 100
    assert reduced_value(MEASURES["chi2_neyman"], *[sides[i] for i in (1, 0, 3, 2)]) > 100


@pytest.mark.parametrize("name", ["forward_kl", "jeffreys"])
def test_a_tail_of_pi_that_rounds_to_nothing_is_no_infinite_distance(name: str) -> None:
    """Confident policies over a large vocabulary: float32 leaves pi no tail, and mu a little more than a rounding."""
    tail = torch.tensor(2e-6)
    mu, pi = torch.stack([1 - tail, torch.tensor(0.0)]), torch.tensor([1.0, 0.0])
    found = reduced_value(MEASURES[name], mu, pi, tail, torch.tensor(0.0))
    assert 0 <= found < 1e-4
    # An empty class that is an id's own, not what a sum left over, is another matter.
    assert reduced_value(MEASURES[name], torch.tensor([0.9, 0.1]), pi, tail * 0, tail * 0) >= 1e6


@every_measure
@pytest.mark.parametrize("empty", ["mu", "pi", "both"])
def test_no_tail_that_rounds_to_nothing_puts_a_token_far_away(measure: Measure, empty: str) -> None:
    """Either policy's tail, or both, against what is left of the other: value and direction are of the tail's size."""
    left, none = torch.tensor(2e-6), torch.tensor(0.0)
    rest, certain = torch.stack([1 - left, none]), torch.tensor([1.0, 0.0])
    mu, mu_tail = (certain, none) if empty in ("mu", "both") else (rest, left)
    pi, pi_tail = (certain, none) if empty in ("pi", "both") else (rest, left)
    assert 0 <= reduced_value(measure, mu, pi, mu_tail, pi_tail) < 1e-4
    classes = Masses(mu, pi, mu_tail, pi_tail, unseen=torch.tensor(50_000.0))
    for rule in ("none", "aggregated", "uniform"):
        assert reduced_direction(measure, classes, torch.tensor(0), rule).abs() < 1e-4, rule
    if empty == "mu" and measure.log_of_mu:
        # A class of mu that is an id's own, not what a sum left over, is another matter.
        assert reduced_value(measure, certain, torch.tensor([0.9, 0.1]), none, none) >= 1e6


@pytest.mark.parametrize("name", ["reverse_kl", "jeffreys"])
def test_real_mass_over_an_empty_tail_of_mu_counts_at_its_size(name: str) -> None:
    """pi keeps 0.01 where mu leaves less than 8 roundings, 2^-20: 0.01 log(0.01 / 2^-20) + 0.99 log 0.99 = 0.083, not
    1e6."""
    mu, pi = torch.tensor([1.0, 0.0]), torch.tensor([0.99, 0.0])
    found = reduced_value(MEASURES[name], mu, pi, torch.tensor(0.0), torch.tensor(0.01))
    far = math.log(0.01 / 2**-20)
    reverse, forward = 0.01 * far + 0.99 * math.log(0.99), -math.log(0.99) - 2**-20 * far
    assert found.item() == pytest.approx(reverse + (forward if name == "jeffreys" else 0.0), rel=1e-5)


def test_masses_of_another_shape_are_refused() -> None:
    """They would be broadcast: one tail for every token, one policy for every row."""
    mu, tail = torch.full((3, 2), 0.4), torch.full((3,), 0.2)
    for wrong in ((mu, mu, tail[:1], tail), (mu, mu[:1], tail, tail), (mu, mu, tail, tail.unsqueeze(-1))):
        with pytest.raises(ValueError, match=r"of shapes .*: allowed are \[[.]{3}, S\] twice and \[[.]{3}\] twice"):
            reduced_value(MEASURES["tv"], *wrong)


@every_measure
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_low_precision_inputs_cost_no_more_than_their_rounding(measure: Measure, dtype: torch.dtype) -> None:
    """Every tail and every measure: rounded inputs give what they give in float64, up to float32 arithmetic."""
    low = changed(random_rows(3).signals(), lambda value: value.to(dtype))
    high = changed(low, torch.Tensor.double)
    for tail in TAILS:
        a, b = (predictive_direction(sanitise(signals), measure, tail) for signals in (low, high))
        assert a.dtype == torch.float32
        torch.testing.assert_close(a.double(), b, rtol=2e-4, atol=5e-6)
    a, b = (divergence(sanitise(signals), measure.name, full=True) for signals in (low, high))
    torch.testing.assert_close(a.double(), b, rtol=2e-4, atol=5e-6)


@pytest.mark.parametrize("name", ["tv", "hellinger2", "chi2_pearson", "chi2_neyman", "l2"])
def test_nearly_equal_policies_keep_their_digits(name: str) -> None:
    """Masses a relative 2^-12 apart in float32: a form with a cancelling sum would return rounding noise or zero."""
    mu = torch.tensor([0.5, 0.25, 0.25])
    pi = mu + torch.tensor([2.0**-13, -(2.0**-13), 0.0])
    want = MEASURES[name].value(mu.double(), pi.double())
    torch.testing.assert_close(MEASURES[name].value(mu, pi).double(), want, rtol=2e-3, atol=0)


@every_measure
def test_masses_below_the_smallest_normal_number(measure: Measure) -> None:
    """Subnormal and zero masses on either side: nothing is NaN, nothing infinite, equal ones are at zero."""
    small = [0.0, 1e-45, 1e-38, 1e-30]
    for m in small:
        for p in small:
            mu, pi = torch.tensor([m, 0.75, 0.25]), torch.tensor([p, 0.25, 0.75])
            assert math.isfinite(measure.value(mu, pi)) and torch.isfinite(measure.logit_gradient(mu, pi)).all()
    same = torch.tensor([1e-45, 0.75, 0.25])
    assert measure.value(same, same) == 0


def test_reverse_binary_kl_is_the_other_way_round() -> None:
    mu, pi = tensor(0.2).log(), tensor(0.6).log()
    assert BINARY_MEASURES["binary_reverse_kl"](mu, pi) == binary_kl(pi, mu) != binary_kl(mu, pi)
