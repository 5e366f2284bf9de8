"""A mask method is a proximity measure, a direction criterion and a radius; this file joins the three.

Shapes: B sequences, T response tokens. Source: Eq. 12 of the DPPO paper and Eq. 13 of arXiv 2607.10848.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from methods.config import MethodConfig, MethodConfigError, Radius, check_cap, check_choice, check_radius, sides
from methods.directions import TAILS, Tail, require_full, require_support
from methods.measures import BINARY_MEASURES, MEASURES, Measure, reduced_value
from methods.registry import Needs
from methods.signals import Signals
from methods.support import SUPPORT_RULES, SupportRule, masses
from methods.thresholds import above


@dataclass(frozen=True)
class MaskConfig(MethodConfig):
    """Radius and cap of a mask."""

    delta: Radius = 0.15
    """Radius in the measure's unit: a number, or (low, high) for A < 0 and A > 0."""
    ratio_cap: float | None = 5.0
    """C of min(r, C), or None for no cap."""

    def __post_init__(self) -> None:
        check_radius("delta", self.delta)
        check_cap("ratio_cap", self.ratio_cap)


@dataclass(frozen=True)
class TopKMaskConfig(MaskConfig):
    """A mask that looks at the top-K support."""

    support: SupportRule = "added"
    """`added`: the sampled token joins the top K; `replaced`: it takes the place of candidate K."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("support", self.support, SUPPORT_RULES)


@dataclass(frozen=True)
class TailMaskConfig(TopKMaskConfig):
    """A mask with a rule for the tail."""

    tail: Tail = "collision"
    """How D and its direction see the ids outside the support; `full`: no support and no tail."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("tail", self.tail, TAILS)
        if self.tail == "full" and self.support != "added":
            raise MethodConfigError(f"support = {self.support!r}: allowed is 'added' with tail full, which reads none")


def tail_needs(config: Any) -> Needs:
    """Of a method with an option `tail`: full distributions, or a support and, for the collision rule, sum pi^2."""
    if config.tail == "full":
        return Needs.FULL
    return Needs.TOP_K | Needs.SUM_PI_SQUARED if config.tail == "collision" else Needs.TOP_K


def masked_coefficient(signals: Signals, config: MaskConfig, *, divergence: Tensor, direction: Tensor) -> Tensor:
    """g = min(r, C) A where the token is kept, else 0. divergence, direction, result: [B, T].

    Raises ValueError for a divergence or direction of another shape, which would be broadcast.
    """
    for name, value in (("divergence", divergence), ("direction", direction)):
        if value.shape != signals.advantages.shape:
            raise ValueError(
                f"{name} of shape {tuple(value.shape)}: allowed is that of the advantages, "
                f"{tuple(signals.advantages.shape)}"
            )
    keep = trust_region_keep(signals.advantages, divergence, direction, config.delta)
    return torch.where(keep, capped_ratio(signals, config.ratio_cap) * signals.advantages, 0.0)


def trust_region_keep(advantages: Tensor, divergence: Tensor, direction: Tensor, radius: Radius) -> Tensor:
    """True where a token keeps its gradient, bool in the broadcast shape of the inputs.

    Drops only where divergence > radius and A * direction > 0, both strictly; `radius` may be (low, high), of which
    high holds for A > 0 and low for A < 0.
    """
    return ~(outside_region(advantages, divergence, radius) & outward(advantages, direction))


def outside_region(advantages: Tensor, divergence: Tensor, radius: Radius) -> Tensor:
    """True where divergence > radius, strictly and by more than rounding, bool."""
    low, high = sides(radius)
    return above(divergence, torch.where(advantages > 0, divergence.new_tensor(high), divergence.new_tensor(low)))


def outward(advantages: Tensor, direction: Tensor) -> Tensor:
    """True where A * direction > 0, strictly, bool."""
    # Signs are multiplied, not values: a product of two small numbers may underflow to zero.
    return torch.sign(advantages) * torch.sign(direction) > 0


def topk_divergence(signals: Signals, measure: Measure) -> Tensor:
    """D(mu, pi) on top-K, the sampled token and one tail class, [B, T]."""
    classes = masses(require_support(signals), signals.vocab_size)
    return reduced_value(measure, classes.mu, classes.pi, classes.mu_tail, classes.pi_tail)


def divergence(signals: Signals, name: str, *, full: bool = False) -> Tensor:
    """The measure of that name, [B, T]: a `binary_` one of the sampled token, else reduced to top-K or in full."""
    if name in BINARY_MEASURES:
        return BINARY_MEASURES[name](signals.logp_mu, signals.logp_pi)
    if full:
        mu, pi, _ = require_full(signals)
        return MEASURES[name].value(mu, pi)
    return topk_divergence(signals, MEASURES[name])


def capped_ratio(signals: Signals, cap: float | None) -> Tensor:
    """min(r, C), [B, T]; C = None means no cap beyond the log-ratio limit."""
    ratio = signals.ratio()
    return ratio if cap is None else ratio.clamp(max=cap)
