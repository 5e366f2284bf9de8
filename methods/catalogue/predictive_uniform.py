"""Predictive divergence mask, uniform tail: the direction is the predicted change of the divergence itself.

    g = min(r, C) · A · M,   M = 0 where  D > delta  and  A · d > 0,  else 1
    d = (pi_k - mu_k) + sum_S pi_i (mu_i - pi_i) + pi_T (mu_T - pi_T) / (n - m)

D is DPPO's Top-K KL. Each tail mass is spread evenly over the n - m unseen tokens; S holds m of n ids.
Source: arXiv 2607.10848 Eqs. 11 (direction), 13 (mask), 14 (objective); K = 20, delta = 0.15, C = 5 [S]. The derivative
is proved in `derivations` [N].
Shapes: signals [B, T] and support [B, T, K + 1] to g [B, T]. Detached: everything.
Public code: none released by the authors.
"""

from __future__ import annotations

from torch import Tensor

from methods import Needs, Signals, register
from methods.directions import predictive_direction
from methods.masks import TopKMaskConfig, masked_coefficient, topk_divergence
from methods.measures import FORWARD_KL
from methods.support import with_support_rule


@register(
    "predictive_uniform",
    title="Predictive mask, uniform tail",
    source="arXiv 2607.10848, Eqs. 11, 13",
    mark="S",
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
        direction=predictive_direction(signals, FORWARD_KL, "uniform"),
    )
