"""DPPO Top-K-KL: divergence is a distribution divergence, direction is still the sampled ratio.

    g = min(r, C) · A · M,   M = 0 where  D > delta  and  A (r - 1) > 0,  else 1
    D = sum_S mu_i log(mu_i/pi_i) + mu_T log(mu_T/pi_T),   S = top-K of mu and the sampled token, T the rest

Source: DPPO paper (arXiv 2602.04879) Eqs. 12, 16 and 23 [F]; delta = 0.15 and C = 5 as arXiv 2607.10848 runs it [S]
(the DPPO paper itself uses 0.05 [F]).
Shapes: signals [B, T] and support [B, T, K + 1] to g [B, T]. Detached: everything.
Public code: Stable-RL writes a sampled token outside the top K over candidate K instead of adding it, which is
`support: replaced` here [F].
"""

from __future__ import annotations

from torch import Tensor

from methods import Needs, Signals, register
from methods.directions import ratio_direction
from methods.masks import TopKMaskConfig, masked_coefficient, topk_divergence
from methods.measures import FORWARD_KL
from methods.support import with_support_rule


@register(
    "dppo_topk_kl",
    title="DPPO Top-K KL",
    source="arXiv 2602.04879, Eqs. 12, 16",
    mark="F",
    config=TopKMaskConfig,
    needs=Needs.TOP_K,
)
def coefficient(signals: Signals, config: TopKMaskConfig) -> Tensor:
    """g, [B, T]."""
    signals = with_support_rule(signals, config.support)
    return masked_coefficient(
        signals,
        config,
        divergence=topk_divergence(signals, FORWARD_KL),
        direction=ratio_direction(signals),
    )
