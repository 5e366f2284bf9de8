"""DPPO Binary-TV: the trust region is the shift of the sampled token's probability.

    g = min(r, C) · A · M,   M = 0 where  |pi - mu| > delta  and  A (r - 1) > 0,  else 1

Source: DPPO paper (arXiv 2602.04879) Eqs. 12, 13 and 23 [F]; delta = 0.2 and C = 5 as in its scaling runs, 0.15 and
no C in its stability study [F]. A predicted direction would change nothing: for any two-outcome divergence the
sampled ratio tells it exactly [N].
Shapes: signals [B, T] to g [B, T]. Detached: everything.
Public code: verl's `dppo_tv` compares the signed shift pi - mu with delta, so its direction test is implicit; it keeps
A = 0 as A < 0, and its cap is PPO's dual-clip key, whose default in the configuration is 3 (20 in the code; Stable-RL:
10) [F].
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from methods import Radius, Signals, register
from methods.directions import ratio_direction
from methods.masks import MaskConfig, masked_coefficient
from methods.measures import binary_tv


@dataclass(frozen=True)
class Config(MaskConfig):
    delta: Radius = 0.2
    """Radius in probability: a number, or (low, high) for A < 0 and A > 0."""


@register("dppo_binary_tv", title="DPPO Binary-TV", source="arXiv 2602.04879, Eqs. 12, 13", mark="F", config=Config)
def coefficient(signals: Signals, config: Config) -> Tensor:
    """g, [B, T]."""
    return masked_coefficient(
        signals,
        config,
        divergence=binary_tv(signals.logp_mu, signals.logp_pi),
        direction=ratio_direction(signals),
    )
