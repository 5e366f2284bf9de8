"""DPPO Top-K-TV: the trust region is the total variation on top-K, the direction the sampled ratio.

    g = min(r, C) · A · M,   M = 0 where  D > delta  and  A (r - 1) > 0,  else 1
    D = 1/2 ( sum_S |mu_i - pi_i| + |mu_T - pi_T| ),   S = top-K of mu and the sampled token, T the rest

Source: DPPO paper (arXiv 2602.04879) Eqs. 12, 15 and 23 [F]; delta = 0.2 and C = 5 as in its scaling runs [F].
Shapes: signals [B, T] and support [B, T, K + 1] to g [B, T]. Detached: everything.
Public code: Stable-RL writes a sampled token outside the top K over candidate K instead of adding it, which is
`support: replaced` here [F]; it clamps head and tail masses at 1e-12.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from methods import Needs, Radius, Signals, register
from methods.directions import ratio_direction
from methods.masks import TopKMaskConfig, masked_coefficient, topk_divergence
from methods.measures import TV
from methods.support import with_support_rule


@dataclass(frozen=True)
class Config(TopKMaskConfig):
    delta: Radius = 0.2
    """Radius in total variation: a number, or (low, high) for A < 0 and A > 0."""


@register(
    "dppo_topk_tv",
    title="DPPO Top-K TV",
    source="arXiv 2602.04879, Eqs. 12, 15",
    mark="F",
    config=Config,
    needs=Needs.TOP_K,
)
def coefficient(signals: Signals, config: Config) -> Tensor:
    """g, [B, T]."""
    signals = with_support_rule(signals, config.support)
    return masked_coefficient(
        signals,
        config,
        divergence=topk_divergence(signals, TV),
        direction=ratio_direction(signals),
    )
