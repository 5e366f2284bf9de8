"""Claim: the interval contains the direction of the full vocabulary, so a certified sign is never wrong.

The truth is the full formula on the float64 softmax of the logits. Inputs are log-probs in float64, float32, bfloat16
and float16, computed in float64 and stored, or computed in float32 as trainers do. That candidates are the most likely
ids of the same distribution their log-probs belong to is the engine's claim.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from methods.certificate import (
    CERTIFIED_MEASURES,
    EXACT,
    ROUNDINGS,
    decided_share,
    direction_interval,
)
from methods.directions import full_direction, predictive_direction
from methods.intervals import Interval
from methods.measures import FORWARD_KL, MEASURES
from methods.signals import Signals, sanitise
from tests.methods import reference_masks
from tests.methods.helpers import Line, Rows, changed, properties, random_rows, tensor

DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
INF = math.inf
# Ties, certain and impossible tokens, near-certain ones, and anything between.
LOGIT = st.sampled_from([-INF, -90.0, -18.0, -3.0, -1.0, 0.0, 0.0, 1.0, 25.0]) | st.floats(-5, 5)


@st.composite
def every_token(draw: st.DrawFn) -> Rows:
    """Two policies over 3 to 8 ids; one position for each id as the sampled one."""
    size = draw(st.integers(3, 8))
    mu, pi = ([*draw(st.lists(LOGIT, min_size=size - 1, max_size=size - 1)), 0.0] for _ in range(2))
    logits = [tensor(z).expand(1, size, size) for z in (mu, pi)]
    ids = torch.arange(size)[None]
    return Rows(*logits, sampled=ids, advantages=torch.ones_like(ids).double(), top_k=draw(st.integers(1, size)))


def truth(rows: Rows, measure: str) -> Tensor:
    return full_direction(MEASURES[measure], rows.logits_mu.softmax(-1), rows.logits_pi.softmax(-1), rows.sampled)


def stored(signals: Signals, precision: str) -> Signals:
    return sanitise(changed(signals, lambda value: value.to(DTYPES[precision])))


def assert_contains(interval: Interval, exact: Tensor) -> None:
    assert (interval.lower <= exact).all() and (exact <= interval.upper).all()
    decided = interval.decided()
    assert torch.equal(decided[decided != 0], torch.sign(exact)[decided != 0].to(decided))


@pytest.mark.parametrize("measure", CERTIFIED_MEASURES)
@settings(properties, max_examples=80)
@given(rows=every_token(), knows=st.tuples(st.booleans(), st.booleans()))
def test_the_certificate_is_never_wrong(measure: str, rows: Rows, knows: tuple[bool, bool]) -> None:
    """With and without sum pi^2 and the vocabulary's size, in every storage format."""
    signals = rows.signals()
    signals = replace(
        signals,
        sum_pi_squared=signals.sum_pi_squared if knows[0] else None,
        vocab_size=signals.vocab_size if knows[1] else None,
    )
    for precision in DTYPES:
        assert_contains(
            direction_interval(stored(signals, precision), MEASURES[measure], ROUNDINGS[precision]),
            truth(rows, measure),
        )


@pytest.mark.parametrize("measure", CERTIFIED_MEASURES)
@pytest.mark.parametrize("scale", [1.0, 4.0, 20.0])
def test_log_probs_computed_in_float32(measure: str, scale: float) -> None:
    """Logits of up to 70 over 2,000 ids; every number that a trainer would compute is computed in float32."""
    rows = random_rows(0, batch=2, length=64, vocab=2000, top_k=20)
    single = Rows(scale * rows.logits_mu.float(), scale * rows.logits_pi.float(), rows.sampled, rows.advantages, 20)
    double = Rows(single.logits_mu.double(), single.logits_pi.double(), rows.sampled, rows.advantages, 20)
    interval = direction_interval(sanitise(single.signals()), MEASURES[measure], ROUNDINGS["float32"])
    assert_contains(interval, truth(double, measure))
    assert decided_share(interval, torch.ones(2, 64, dtype=torch.bool)) > 0.05


def test_the_absolute_rounding_covers_a_large_vocabulary() -> None:
    """log_softmax in float32 over 50,000 logits of up to 64 is off by less than half of what ROUNDINGS states."""
    random = torch.Generator().manual_seed(0)
    logits = 14 * torch.randn(8, 50_000, generator=random)
    logits[:4] += 20
    assert logits.abs().max() > 64
    error = (logits.log_softmax(-1).double() - logits.double().log_softmax(-1)).abs()
    allowed = ROUNDINGS["float32"].relative * logits.double().log_softmax(-1).abs() + ROUNDINGS["float32"].absolute
    assert (error < allowed / 2).all()


@pytest.mark.parametrize("known", [True, False], ids=["sum pi^2", "no sum pi^2"])
def test_forward_kl_interval_by_its_formula(known: bool) -> None:
    """Without rounding: the lower end of the stated bound, and an upper end that is no farther out.

    Without sum pi^2 it mostly is nearer: the stated one takes the largest cross term and the smallest c2 at once,
    which no tail has but an even one.
    """
    for seed in range(3):
        rows = random_rows(seed)
        signals = sanitise(rows.signals() if known else rows.signals(sum_pi_squared=None))
        got = direction_interval(signals, FORWARD_KL, EXACT)
        want = tensor([[reference_masks.interval(token, known) for token in row] for row in rows.tokens()])
        assert (got.lower >= want[..., 0] - 1e-12).all() and (got.upper <= want[..., 1] + 1e-12).all()
        same_lower = (got.lower - want[..., 0]).abs() < 1e-12
        nearer = got.upper < want[..., 1] - 1e-12
        assert same_lower.all() and (not nearer.any() if known else nearer.float().mean() > 0.9)


def one(mu: list[float], pi: list[float], k: int, top_k: int) -> tuple[Signals, Rows]:
    rows = Rows(tensor([[mu]]).log(), tensor([[pi]]).log(), torch.tensor([[k]]), tensor([[1.0]]), top_k)
    return sanitise(rows.signals()), rows


def test_both_ends_are_reached() -> None:
    """Lower: pi's tail on one id that mu excludes. Upper, one unseen id: then the cross term is known, too."""
    signals, rows = one([0.5, 0.3, 0.2, 0.0], [0.3, 0.3, 0.0, 0.4], 0, 2)
    exact = truth(rows, "forward_kl").item()
    apart = direction_interval(replace(signals, sum_pi_squared=None), FORWARD_KL, EXACT)
    assert apart.lower.item() == pytest.approx(exact, abs=1e-13)
    assert direction_interval(signals, FORWARD_KL, EXACT).lower.item() == pytest.approx(exact, abs=1e-13)
    signals, rows = one([0.5, 0.3, 0.2], [0.3, 0.3, 0.4], 0, 2)
    interval = direction_interval(replace(signals, sum_pi_squared=None), FORWARD_KL, EXACT)
    exact = truth(rows, "forward_kl").item()
    assert (interval.lower.item(), interval.upper.item()) == pytest.approx((exact, exact), abs=1e-13)


def test_a_rare_sampled_token_does_not_bound_the_tail() -> None:
    """Candidates 0.4 and 0.3, sampled 1e-6, unseen 0.2 and 0.099999: the least likely *retained* id would bound the
    unseen

    ones by 1e-6, and the direction, which holds pi_2 mu_2 = 0.6 (0.2), would lie above such an interval.
    """
    signals, rows = one([0.4, 0.3, 0.2, 0.099999, 1e-6], [0.2, 0.1, 0.6, 0.05, 0.05], 4, 2)
    exact = truth(rows, "forward_kl").item()
    interval = direction_interval(signals, FORWARD_KL, ROUNDINGS["float64"])
    assert interval.lower.item() < exact < interval.upper.item()
    base = predictive_direction(signals, FORWARD_KL, "collision").item()
    classes_tail = 0.65 * 0.299999
    c2 = 0.6**2 + 0.05**2
    retained_part = base - c2 / 0.65 * (0.299999 - 0.65)
    assert retained_part + 0.65 * 1e-6 - c2 < exact < retained_part + classes_tail


def test_a_mask_that_keeps_what_is_open_drops_outward_tokens_only() -> None:
    """Whatever it drops moves out in truth, in float32 and bfloat16."""
    for precision in ("float32", "bfloat16"):
        rows = random_rows(2, batch=16, length=16)
        signals = stored(rows.signals(), precision)
        options = {"precision": precision, "delta": 0.05}
        dropped = (Line("predictive_certified", options, None).coefficient(signals) == 0) & (signals.advantages != 0)
        assert dropped.sum() > 20
        assert (torch.sign(truth(rows, "forward_kl")) == torch.sign(rows.advantages))[dropped].all()


def test_rounding_is_an_explicit_width() -> None:
    """More rounding, wider intervals; stated as none, bfloat16 inputs give an interval that misses the truth."""
    rows = random_rows(3, batch=16, length=16)
    precise, coarse = sanitise(rows.signals()), stored(rows.signals(), "bfloat16")
    for name in CERTIFIED_MEASURES:
        nested = [EXACT, *(ROUNDINGS[precision] for precision in ("float64", "float32", "float16", "bfloat16"))]
        intervals = [direction_interval(precise, MEASURES[name], rounding) for rounding in nested]
        for inner, outer in zip(intervals, intervals[1:], strict=False):
            assert (outer.lower <= inner.lower).all() and (inner.upper <= outer.upper).all()
        exact, wrong = truth(rows, name), direction_interval(coarse, MEASURES[name], EXACT)
        assert not ((wrong.lower <= exact) & (exact <= wrong.upper)).all()


def test_what_is_known_makes_it_narrower() -> None:
    """sum pi^2 and the vocabulary's size never widen an interval, and decide more signs."""
    signals = sanitise(random_rows(4, batch=16, vocab=100, top_k=8).signals())
    everywhere = signals.response_mask
    for name in CERTIFIED_MEASURES:
        views = (signals, replace(signals, sum_pi_squared=None), replace(signals, sum_pi_squared=None, vocab_size=None))
        intervals = [direction_interval(view, MEASURES[name], ROUNDINGS["float32"]) for view in views]
        for inner, outer in zip(intervals, intervals[1:], strict=False):
            assert (outer.lower <= inner.lower).all() and (inner.upper <= outer.upper).all()
        shares = [decided_share(interval, everywhere) for interval in intervals]
        assert shares[0] > shares[1] >= shares[2]


def test_without_unseen_ids_there_is_no_tail() -> None:
    """K = V: what float16 masses lack of one is rounding, which the bounds of the masses themselves account for."""
    signals = stored(random_rows(5, vocab=6, top_k=6).signals(sum_pi_squared=None), "float16")
    known, unknown = (
        direction_interval(view, FORWARD_KL, EXACT) for view in (signals, replace(signals, vocab_size=None))
    )
    assert (known.upper - known.lower < 1e-12).all() and (unknown.upper - unknown.lower).max() > 1e-10


def test_a_rounded_collision_mass_is_allowed_for() -> None:
    """sum pi^2 off by three times the absolute rounding of a log-prob, either way, all else exact."""
    rows = random_rows(6, batch=8)
    signals = sanitise(rows.signals())
    for sign in (-1, 1):
        off = signals.sum_pi_squared * (1 + sign * 3 * ROUNDINGS["float32"].absolute)
        rounded = replace(signals, sum_pi_squared=off)
        for name in CERTIFIED_MEASURES:
            assert_contains(direction_interval(rounded, MEASURES[name], ROUNDINGS["float32"]), truth(rows, name))


def test_equal_policies_are_never_decided() -> None:
    for precision, dtype in DTYPES.items():
        signals = stored(random_rows(0, drift=0.0).signals(), precision)
        assert signals.logp_pi.dtype == torch.promote_types(dtype, torch.float32)
        for name in CERTIFIED_MEASURES:
            interval = direction_interval(signals, MEASURES[name], ROUNDINGS[precision])
            assert decided_share(interval, signals.response_mask) == 0


def test_a_log_prob_above_zero_costs_its_excess() -> None:
    """+.0078 in bfloat16 for a certain token: the mass is 1, its error at least that excess."""
    signals, _ = one([0.75, 0.25], [0.5, 0.5], 0, 1)
    spoilt = replace(
        signals, support=replace(signals.support, logp_pi=torch.full_like(signals.support.logp_pi, 0.0078))
    )
    interval = direction_interval(replace(spoilt, sum_pi_squared=None), FORWARD_KL, EXACT)
    # pi_0 in [0.9922, 1], mu_0 = 0.75: lower 0.2422 + 0.7442 - 1, upper 0.25 + 0.75 - 0.9845 + 0.0078 (0.25).
    assert (interval.lower.item(), interval.upper.item()) == pytest.approx((-0.0136, 0.0174), abs=2e-4)


def test_an_interval_is_clamped_at_both_ends() -> None:
    clamped = Interval(tensor([-1.0, 0.2]), tensor([0.5, 3.0])).clamped(0.0, 1.0)
    assert clamped.lower.tolist() == [0.0, 0.2] and clamped.upper.tolist() == [0.5, 1.0]
