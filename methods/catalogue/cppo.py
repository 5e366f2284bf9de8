"""CPPO: a token's allowance shrinks with the divergence its prefix has used up, and early tokens count more.

    g = min(r, C) · A · M,   M = 0 where  A (r - 1) > 0  and  Z_t > c_t,  else 1
    Z_t = w_t D_t,   c_t = min(delta, delta + delta_b W_(t-1) - S_(t-1)),   S, W: prefix sums of Z and w

w falls linearly from 1 at the first token to w_min at the last. delta_b, what the prefix may spend per token, is the
90th percentile of the response's own D_t within [d, 2 d], or a fixed number. D is TV on top-K, the sampled token and
one tail class, or |pi - mu| of the sampled token (`measure` binary_tv).
Source: arXiv 2606.10968 [F]: w_min 0.8, delta 0.15 (0.2 for 30B), d 0.02 for base models, budget 0.015 fixed for
post-trained ones. C is not stated; none [I].
Shapes: signals [B, T] and support [B, T, K + 1] to g [B, T]. Detached: everything.
Public code: none seen. Positions count valid tokens only, and a response of one token has w = 1 [I].
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from methods import MethodConfig, Needs, Signals, check_cap, check_choice, check_fraction, check_positive, register
from methods.directions import ratio_direction
from methods.masks import capped_ratio, divergence, outward
from methods.rows import prefix_sum, row_quantile
from methods.thresholds import above

MEASURES = ("tv", "binary_tv")
BUDGET_QUANTILE = 0.9  # [F]


@dataclass(frozen=True)
class Config(MethodConfig):
    delta: float = 0.15
    """Largest Z_t that is allowed, whatever the prefix has spent."""
    w_min: float = 0.8
    """Weight of the last token."""
    d: float = 0.02
    """Scale of delta_b, which lies within [d, 2 d]."""
    budget: float | None = None
    """delta_b itself, or None to take it from the response."""
    measure: str = "tv"
    """Measure of D_t."""
    ratio_cap: float | None = None
    """C of min(r, C), or None for no cap."""

    def __post_init__(self) -> None:
        check_positive("delta", self.delta)
        check_fraction("w_min", self.w_min)
        check_positive("d", self.d)
        if self.budget is not None:
            check_positive("budget", self.budget)
        check_choice("measure", self.measure, MEASURES)
        check_cap("ratio_cap", self.ratio_cap)


def needs(config: Config) -> Needs:
    """Top-K for the reduced TV, nothing for the sampled token's."""
    return Needs.TOP_K if config.measure == "tv" else Needs.SAMPLED


@register("cppo", title="CPPO", source="arXiv 2606.10968", mark="F", config=Config, needs=needs)
def coefficient(signals: Signals, config: Config) -> Tensor:
    """g, [B, T]."""
    mask, advantages = signals.response_mask, signals.advantages
    distance = divergence(signals, config.measure)
    weights = position_weights(mask, config.w_min).to(distance.dtype)
    budget = row_quantile(distance, mask, BUDGET_QUANTILE).clamp(config.d, 2 * config.d)
    if config.budget is not None:
        budget = torch.full_like(budget, config.budget)
    left = config.delta + budget * prefix_sum(weights, mask) - prefix_sum(weights * distance, mask)
    spends = above(weights * distance, left.clamp(max=config.delta))
    dropped = outward(advantages, ratio_direction(signals)) & spends
    return torch.where(dropped, 0.0, capped_ratio(signals, config.ratio_cap) * advantages)


def position_weights(mask: Tensor, last: float) -> Tensor:
    """w_t, [B, T] float64: 1 at a row's first valid token, falling linearly to `last` at its final one."""
    place = (mask.long().cumsum(-1) - 1).clamp(min=0).double()
    steps = (mask.sum(-1, keepdim=True) - 1).clamp(min=1)
    return 1.0 - (1.0 - last) * place / steps
