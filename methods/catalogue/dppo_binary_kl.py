"""DPPO Binary-KL: the trust region is the KL divergence of "this token or another one".

    g = min(r, C) · A · M,   M = 0 where  D > delta  and  A (r - 1) > 0,  else 1
    D = mu log(mu/pi) + (1 - mu) log((1 - mu)/(1 - pi))   of the sampled token, in nats

Source: DPPO paper (arXiv 2602.04879) Eqs. 12, 14 and 23; delta = 0.05 and C = 5 as in its scaling runs [F]. A predicted
direction would change nothing: for any two-outcome divergence the sampled ratio tells it exactly [N].
Shapes: signals [B, T] to g [B, T]. Detached: everything.
Public code: verl's `dppo_kl` adds 1e-8 in the second logarithm; its cap is PPO's
dual-clip key, whose default in the configuration is 3 (20 in the code; Stable-RL: 10) [F].
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from methods import Radius, Signals, register
from methods.directions import ratio_direction
from methods.masks import MaskConfig, masked_coefficient
from methods.measures import binary_kl


@dataclass(frozen=True)
class Config(MaskConfig):
    delta: Radius = 0.05
    """Radius in nats: a number, or (low, high) for A < 0 and A > 0."""


@register("dppo_binary_kl", title="DPPO Binary-KL", source="arXiv 2602.04879, Eqs. 12, 14", mark="F", config=Config)
def coefficient(signals: Signals, config: Config) -> Tensor:
    """g, [B, T]."""
    return masked_coefficient(
        signals,
        config,
        divergence=binary_kl(signals.logp_mu, signals.logp_pi),
        direction=ratio_direction(signals),
    )
