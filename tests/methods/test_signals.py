"""Claim: `sanitise` refuses what no rounding explains, naming field and position, and leaves the rest as it is.

What it does to garbage under the response mask is the claim of test_invariance.py.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from methods.signals import Scope, Signals, refuse_impossible_samples, sanitise
from methods.support import distinct
from tests.methods.helpers import random_rows

PLAIN = ("logp_pi", "logp_mu", "logp_old", "advantages", "sum_pi_squared", "entropy")


def complete() -> Signals:
    """Signals with every optional field present."""
    rows = random_rows(0, batch=2, length=3)
    signals = rows.signals()
    full = (rows.logits_mu.log_softmax(-1), rows.logits_pi.log_softmax(-1))
    return replace(signals, logp_old=signals.logp_pi - 0.1, entropy=signals.sum_pi_squared, full=full)


def spoilt(signals: Signals, field: str, value: float) -> Signals:
    """`value` at position [1, 2] of the field (at its first valid slot or id, where it has such an axis)."""
    name, _, inner = field.partition(".")
    if name == "full":
        index = ("logp_mu", "logp_pi").index(inner)
        pair = [x.clone() for x in signals.full]
        pair[index][1, 2, 0] = value
        return replace(signals, full=tuple(pair))
    if name == "support":
        column = getattr(signals.support, inner).clone()
        column[1, 2, 0] = value
        return replace(signals, support=replace(signals.support, **{inner: column}))
    column = getattr(signals, name).clone()
    column[1, 2] = value
    return replace(signals, **{name: column})


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("field", [*PLAIN, "support.logp_mu", "support.logp_pi", "full.logp_mu", "full.logp_pi"])
def test_nan_and_infinity_are_refused(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"^{field.replace('.', '[.]')}\[1, 2(, 0)?\] = (nan|inf) ") as error:
        sanitise(spoilt(complete(), field, value))
    assert "inside the response mask" in str(error.value)


@pytest.mark.parametrize("field", ["logp_pi", "logp_mu", "logp_old", "support.logp_mu", "support.logp_pi"])
def test_a_log_prob_above_zero_is_refused_beyond_rounding(field: str) -> None:
    sanitise(spoilt(complete(), field, 0.045))
    with pytest.raises(ValueError, match=rf"^{field.replace('.', '[.]')}.* above zero by more than 0.05"):
        sanitise(spoilt(complete(), field, 0.055))


@pytest.mark.parametrize("field", ["logp_pi", "logp_mu", "logp_old", "support.logp_pi", "full.logp_pi"])
def test_an_impossible_token_is_legal(field: str) -> None:
    sanitise(spoilt(complete(), field, -math.inf))


@pytest.mark.parametrize("field", ["advantages", "sum_pi_squared", "entropy"])
def test_minus_infinity_is_refused_where_it_is_no_log_prob(field: str) -> None:
    with pytest.raises(ValueError, match=rf"^{field}\[1, 2\] = -inf is not finite"):
        sanitise(spoilt(complete(), field, -math.inf))


def test_clean_signals_pass_through() -> None:
    signals = complete()
    clean = sanitise(signals)
    for name in PLAIN:
        assert torch.equal(getattr(clean, name), getattr(signals, name)), name
    for got, want in zip(clean.full, signals.full, strict=True):
        assert torch.equal(got, want)
    valid = signals.support.valid
    assert torch.equal(clean.support.valid, valid) and torch.equal(clean.support.ids, signals.support.ids)
    for name in ("logp_mu", "logp_pi"):
        got, want = getattr(clean.support, name), getattr(signals.support, name)
        assert torch.equal(got[valid], want[valid]) and (got[~valid] == -math.inf).all()
    assert clean.scope is Scope.MICRO_BATCH and clean.vocab_size == 12


def test_everything_is_detached_and_at_least_float32() -> None:
    signals = complete()
    half = replace(
        signals,
        **{name: getattr(signals, name).half().requires_grad_() for name in PLAIN},
        full=tuple(x.half().requires_grad_() for x in signals.full),
        support=replace(
            signals.support,
            logp_mu=signals.support.logp_mu.half().requires_grad_(),
            logp_pi=signals.support.logp_pi.half().requires_grad_(),
        ),
    )
    clean = sanitise(half)
    tensors = [*(getattr(clean, name) for name in PLAIN), *clean.full, clean.support.logp_mu, clean.support.logp_pi]
    assert all(x.dtype == torch.float32 and not x.requires_grad for x in tensors)


def test_full_distributions_are_neutral_under_the_mask() -> None:
    signals = complete()
    mask = torch.ones(2, 3, dtype=torch.bool)
    mask[1, 2] = False
    clean = sanitise(replace(spoilt(signals, "full.logp_pi", math.nan), response_mask=mask))
    assert (clean.full[1][1, 2] == -math.inf).all() and torch.isfinite(clean.full[1][mask]).all()


def test_optional_fields_stay_absent() -> None:
    optional = ("logp_old", "support", "sum_pi_squared", "entropy", "full", "sampled", "uniforms", "vocab_size")
    clean = sanitise(random_rows(0).signals(**dict.fromkeys(optional)))
    assert all(getattr(clean, name) is None for name in optional)


def test_a_support_without_the_sampled_token_is_refused() -> None:
    """The last slot must name the sampled token: a filler there would silently drop the local term."""
    signals = complete()
    ids, valid = signals.support.ids.clone(), signals.support.valid.clone()
    ids[1, 2, -1] = -1
    valid[1, 2, -1] = False
    broken = replace(signals, support=replace(signals.support, ids=ids, valid=valid))
    with pytest.raises(ValueError, match=r"support[.]ids\[1, 2\].*id -1"):
        sanitise(broken)
    mask = torch.ones(2, 3, dtype=torch.bool)
    mask[1, 2] = False
    sanitise(replace(broken, response_mask=mask))


def test_sampled_ids_are_kept_inside_the_mask_and_neutral_outside() -> None:
    mask = torch.tensor([[True, False]])
    zeros = torch.zeros(1, 2)
    got = sanitise(Signals(zeros, zeros, zeros, mask, sampled=torch.tensor([[7, 9]])))
    assert got.sampled is not None and got.sampled.tolist() == [[7, 0]]


@pytest.mark.parametrize("value", [0.5, -1.0, 2.0, math.nan])
def test_a_mask_of_other_values_is_refused(value: float) -> None:
    signals = complete()
    mask = torch.ones(2, 3)
    mask[1, 2] = value
    with pytest.raises(ValueError, match=rf"^response_mask\[1, 2\] = {value}: allowed are 0 and 1"):
        sanitise(replace(signals, response_mask=mask))


def test_mask_and_advantages_in_each_others_place_are_refused() -> None:
    """Advantages are no zeros and ones; where they are, a mask of flags is no advantage."""
    signals = complete()
    swapped = replace(signals, advantages=signals.response_mask, response_mask=signals.advantages)
    with pytest.raises(ValueError, match=r"^response_mask\[0, \d\] = .*: allowed are 0 and 1"):
        sanitise(swapped)
    with pytest.raises(ValueError, match="^advantages of dtype torch.bool: allowed are numbers"):
        sanitise(replace(swapped, response_mask=torch.ones(2, 3)))


@pytest.mark.parametrize("field", ["ids", "logp_mu", "logp_pi", "valid"])
def test_a_part_of_the_support_of_another_shape_is_refused(field: str) -> None:
    """[B, 1, S], [B, T, 1] and [T, S] would be broadcast."""
    signals = complete()
    part = getattr(signals.support, field)
    for wrong in (part[:, :1], part[..., :1], part[0]):
        with pytest.raises(ValueError, match=r"^support[.]\w+ of shape \(.*\): allowed is \(2, 3, \d\)"):
            sanitise(replace(signals, support=replace(signals.support, **{field: wrong})))


@pytest.mark.parametrize("place", [0, 1])
def test_distributions_of_another_shape_are_refused(place: int) -> None:
    signals = complete()
    for wrong in (signals.full[place][:, :1], signals.full[place][..., :1]):
        pair = [*signals.full]
        pair[place] = wrong
        with pytest.raises(ValueError, match=r"^full[.]logp_(mu|pi) of shape \(.*\): allowed is \(2, 3, \d+\)"):
            sanitise(replace(signals, full=tuple(pair)))


def test_an_id_that_is_valid_twice_is_refused() -> None:
    """Its mass would count twice. A repetition that is marked as such, or lies outside the mask, is none."""
    signals = complete()
    ids, valid = signals.support.ids.clone(), signals.support.valid.clone()
    ids[1, 2, 1] = ids[1, 2, 0]
    repeated = replace(signals, support=replace(signals.support, ids=ids, valid=torch.ones_like(valid)))
    with pytest.raises(ValueError, match=r"^support.ids\[\d, \d\]: an id is valid in two slots"):
        sanitise(repeated)
    sanitise(replace(repeated, support=replace(repeated.support, valid=distinct(ids))))
    sanitise(replace(repeated, response_mask=torch.zeros(2, 3)))


def test_a_token_that_the_rollout_policy_holds_impossible_is_refused() -> None:
    """By the losses, not by `sanitise`, of which the limits are asked too; outside the mask it is nothing."""
    logp, mask = torch.tensor([[-1.0, -1.0], [-1.0, -math.inf]]), torch.ones(2, 2, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"^logp_mu = -inf at sample 1 of a call, token 1: .* allowed is a finite"):
        refuse_impossible_samples(logp, mask, "a call")
    mask[1, 1] = False
    refuse_impossible_samples(logp, mask, "a call")
