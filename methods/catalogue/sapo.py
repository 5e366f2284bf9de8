"""SAPO: a smooth gate in place of the clip; tokens fade out on both sides of r = 1, faster for A < 0.

    objective  (4 / tau) sigmoid(tau (r - 1)) · A
    g = 4 p (1 - p) · r · A,  p = sigmoid(tau (r - 1)),  tau = tau_pos if A > 0 else tau_neg

The gate's slope is 1 at r = 1, whatever tau.
Source: arXiv 2511.20347; tau 1.0 and 1.05 [F]. The paper takes the mean over a response's tokens first (aggregation
seq-mean-token-mean).
Shapes: signals [B, T] to g [B, T]. Detached: all, which gives the same gradient as differentiating the objective.
Public code: verl's `sapo` fixes that aggregation whatever the config says.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from methods import MethodConfig, Signals, check_positive, register


@dataclass(frozen=True)
class Config(MethodConfig):
    tau_pos: float = 1.0
    """Steepness of the gate for A > 0."""
    tau_neg: float = 1.05
    """Steepness of the gate for A <= 0."""

    def __post_init__(self) -> None:
        check_positive("tau_pos", self.tau_pos)
        check_positive("tau_neg", self.tau_neg)


@register("sapo", title="SAPO", source="arXiv 2511.20347", mark="F", config=Config)
def coefficient(signals: Signals, config: Config) -> Tensor:
    """g, [B, T]."""
    ratio, advantages = signals.ratio(), signals.advantages
    tau = torch.where(advantages > 0, ratio.new_tensor(config.tau_pos), ratio.new_tensor(config.tau_neg))
    scaled = tau * (ratio - 1.0)
    # sigmoid(-x) rather than 1 - sigmoid(x), which rounds to zero long before the slope does.
    slope = 4.0 * torch.sigmoid(scaled) * torch.sigmoid(-scaled)
    return slope * ratio * advantages
