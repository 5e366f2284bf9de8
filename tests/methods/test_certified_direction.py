"""Claim: a certified sign decides, the named fall-back decides the rest, and intervals compute what they say.

That the intervals contain the truth: test_certificate.py.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from methods.catalogue import predictive_certified
from methods.certificate import (
    CERTIFIED_MEASURES,
    EXACT,
    FALLBACKS,
    ROUNDINGS,
    Rounding,
    certified_direction,
    decided_share,
    direction_interval,
)
from methods.directions import predictive_direction, ratio_direction
from methods.intervals import Interval
from methods.measures import FORWARD_KL, MEASURES, TV
from methods.signals import sanitise
from methods.support import with_support_rule
from tests.methods.helpers import properties, random_rows, tensor


def test_the_support_rule_moves_the_fallback_only() -> None:
    """What is certain about the whole vocabulary does not depend on how a mask pools it."""
    signals = sanitise(random_rows(0, batch=8).signals())
    certain = direction_interval(signals, FORWARD_KL, ROUNDINGS["float64"]).decided() != 0
    both = [
        certified_direction(signals, FORWARD_KL, "aggregated", ROUNDINGS["float64"], rule)
        for rule in ("added", "replaced")
    ]
    assert torch.equal(both[0][certain], both[1][certain]) and not torch.equal(both[0], both[1])
    want = predictive_direction(with_support_rule(signals, "replaced"), FORWARD_KL, "aggregated")
    assert torch.equal(both[1][~certain], want[~certain])


@pytest.mark.parametrize("fallback", FALLBACKS)
def test_the_named_fallback_decides_where_the_sign_is_open(fallback: str) -> None:
    signals = sanitise(random_rows(1, batch=8).signals())
    certain = direction_interval(signals, TV, ROUNDINGS["float64"]).decided()
    got = certified_direction(signals, TV, fallback, ROUNDINGS["float64"])
    open_ = certain == 0
    assert open_.any() and (~open_).any() and torch.equal(got[~open_], certain[~open_])
    if fallback == "keep":
        want = torch.zeros_like(got)
    elif fallback == "ratio":
        want = ratio_direction(signals)
    else:
        want = predictive_direction(signals, TV, fallback)  # type: ignore[arg-type]
    assert torch.equal(got[open_], want[open_])


def test_decided_share_by_hand() -> None:
    """Positive, negative, open, touching zero, contradictory, and one outside the tokens asked for."""
    lower, upper = tensor([0.1, -0.2, -0.1, 0.0, 0.2, 0.1]), tensor([0.2, -0.1, 0.1, 0.3, -0.2, 0.3])
    interval = Interval(lower, upper)
    assert interval.decided().tolist() == [1, -1, 0, 0, 0, 1]
    assert decided_share(interval, torch.tensor([True] * 5 + [False])) == 2 / 5
    assert decided_share(interval, torch.zeros(6, dtype=torch.bool)) == 0


def test_what_has_no_bound_is_refused() -> None:
    signals = sanitise(random_rows(0).signals())
    for name in set(MEASURES) - set(CERTIFIED_MEASURES):
        with pytest.raises(ValueError, match=f"certificate of {name}: .*allowed are forward_kl, tv, hellinger2, l2"):
            direction_interval(signals, MEASURES[name], EXACT)
    with pytest.raises(ValueError, match="fall-back = 'drop': allowed are keep, ratio, none"):
        certified_direction(signals, FORWARD_KL, "drop", EXACT)
    with pytest.raises(ValueError, match="top_k"):
        direction_interval(replace(signals, support=None), FORWARD_KL, EXACT)
    assert predictive_certified.Config().precision in ROUNDINGS and isinstance(ROUNDINGS["float16"], Rounding)


NUMBERS = st.lists(st.floats(-2, 2), min_size=4, max_size=4)


@properties
@given(a=NUMBERS, b=NUMBERS, shares=st.tuples(st.floats(0, 1), st.floats(0, 1)))
def test_interval_arithmetic_contains_every_result(a: list[float], b: list[float], shares: tuple[float, float]) -> None:
    """For numbers inside the operands: sum, difference, product, sign, square, root, sum over an axis, index."""
    x, y = (Interval(torch.minimum(*ends), torch.maximum(*ends)) for ends in (tensor(v).chunk(2) for v in (a, b)))
    p, q = (i.lower + s * (i.upper - i.lower) for i, s in zip((x, y), shares, strict=True))
    positive, root = Interval(x.lower.abs(), x.lower.abs() + x.upper.abs()), x.lower.abs() + shares[0] * x.upper.abs()
    cases = [
        (x + y, p + q),
        (x - y, p - q),
        (x * y, p * q),
        (x.sign(), torch.sign(p)),
        (x.scaled(0.5), 0.5 * p),
        (positive.square(), root.square()),
        (positive.sqrt(), root.sqrt()),
        (x.sum(), p.sum(-1)),
        (x.at(torch.tensor(1)), p[1]),
        (x.intersected(Interval(p - 1, p + 1)), p),
        (x.clamped(-2.0, 2.0), p),
    ]
    for interval, value in cases:
        slack = 1e-12
        assert (interval.lower - slack <= value).all() and (value <= interval.upper + slack).all()
