"""Claim: a method sees what it asked for and nothing else, and what it returns is a coefficient or is refused by name.

Held at `Method.coefficient`, which every path goes through; that the losses do: tests/backend/test_loss.py. Not
covered: a method that reaches for other data by a way of its own, such as a global.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import MISSING, fields, replace
from typing import Any

import pytest
import torch

from eval.method_checks.synthetic import batch
from eval.method_pages.curve import curves
from methods.config import MethodConfig
from methods.contract import BRINGS, MethodError, Needs
from methods.registry import Method
from methods.signals import Signals, sanitise

B, T = batch().logp_pi.shape
EVERYTHING = ~Needs.SAMPLED


def method(function: Callable[[Signals, Any], Any], needs: Needs = Needs.SAMPLED) -> Method:
    return Method("mine", "Mine", "none", "N", function, MethodConfig, needs, "none")


def weighed(function: Callable[[Signals, Any], Any], needs: Needs = Needs.SAMPLED) -> Any:
    return method(function, needs).coefficient(sanitise(batch()), MethodConfig())


# What a coefficient may be mistaken for, and how the error shows it.
NO_COEFFICIENT: dict[str, tuple[Callable[[Signals], Any], str]] = {
    "a number": (lambda s: 1.0, "1.0"),
    "a flag": (lambda s: True, "True"),
    "nothing": (lambda s: None, "None"),
    "a pair": (lambda s: (s.advantages, s.advantages), "a tuple"),
    "an array": (lambda s: s.advantages.numpy(), "a ndarray"),
    "no dimension": (lambda s: s.advantages.sum(), "a tensor of shape []"),
    "a column": (lambda s: s.advantages.sum(-1, keepdim=True), f"a tensor of shape [{B}, 1]"),
    "a row": (lambda s: s.advantages[:1], f"a tensor of shape [1, {T}]"),
    "one row's numbers": (lambda s: s.advantages[0], f"a tensor of shape [{T}]"),
    "one number a row": (lambda s: s.advantages[:, 0], f"a tensor of shape [{B}]"),
    "a slot axis": (lambda s: s.advantages.unsqueeze(-1), f"a tensor of shape [{B}, {T}, 1]"),
    "flags": (lambda s: s.advantages > 0, "a tensor of torch.bool"),
    "integers": (lambda s: s.advantages.long(), "a tensor of torch.int64"),
    "half precision": (lambda s: s.advantages.half(), "a tensor of torch.float16"),
    "a gradient": (lambda s: s.advantages.clone().requires_grad_(), "a tensor that requires a gradient"),
}


@pytest.mark.parametrize("case", NO_COEFFICIENT)
def test_what_is_no_coefficient_is_refused(case: str) -> None:
    function, shown = NO_COEFFICIENT[case]
    want = f"method mine returned {shown}, expected a float tensor [B, T] = [{B}, {T}]"
    with pytest.raises(MethodError, match=f"^{re.escape(want)}"):
        weighed(lambda signals, _: function(signals))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_is_named_with_its_place(value: float) -> None:
    def spoilt(signals: Signals, _: Any) -> torch.Tensor:
        g = signals.advantages.clone()
        g[2, 1] = value
        return g

    at = sanitise(batch()).logp_pi[2, 1].item()
    with pytest.raises(
        MethodError, match=rf"^method mine is {value} at \[2, 1\], where logp_pi = {at:.6g}, logp_mu = "
    ):
        weighed(spoilt)


def test_outside_the_response_mask_anything_goes() -> None:
    """The loss selects before it sums."""
    mask = batch().response_mask
    g = weighed(lambda signals, _: torch.where(signals.response_mask, signals.advantages, math.nan))
    assert g[~mask].isnan().all() and g[mask].isfinite().all() and not mask.all()


@pytest.mark.parametrize("field", BRINGS)
def test_a_signal_that_was_not_asked_for_is_hidden(field: str) -> None:
    """Reading it names the need; each of the needs that bring it gives it."""

    def reads(signals: Signals, _: Any) -> torch.Tensor:
        assert getattr(signals, field) is not None
        return signals.advantages

    want = f"method mine reads signals.{field}, which it does not ask for: add needs=Needs."
    with pytest.raises(MethodError, match=f"^{re.escape(want)}") as error:
        weighed(reads, EVERYTHING & ~BRINGS[field])
    for need in BRINGS[field]:
        assert f"Needs.{need.name}" in str(error.value)
        assert weighed(reads, need) is not None


def test_every_optional_signal_has_a_need() -> None:
    optional = {field.name for field in fields(Signals) if field.default is None}
    assert set(BRINGS) == optional
    always = {field.name for field in fields(Signals) if field.default is MISSING}
    assert always == {"logp_pi", "logp_mu", "advantages", "response_mask"}


def test_the_visible_signals_are_signals_still() -> None:
    """dataclasses.replace, repr and methods work on them; what is replaced stays hidden where it was."""
    seen: list[Signals] = []

    def keeps(signals: Signals, _: Any) -> torch.Tensor:
        seen.append(signals)
        return replace(signals, advantages=signals.ratio()).advantages

    g = weighed(keeps, Needs.RANDOM)
    torch.testing.assert_close(g, sanitise(batch()).ratio())
    assert isinstance(seen[0], Signals) and "uniforms=" in repr(seen[0]) and "support=" not in repr(seen[0])
    with pytest.raises(MethodError, match="reads signals.support"):
        _ = replace(seen[0], logp_pi=seen[0].logp_mu).support


def test_a_curve_goes_the_same_way() -> None:
    for broken in (lambda s, _: s.advantages[:1], lambda s, _: s.support.logp_pi[..., 0]):
        with pytest.raises(MethodError, match="^method mine "):
            curves(method(broken), MethodConfig())
