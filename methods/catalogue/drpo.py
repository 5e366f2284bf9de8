"""DRPO: a smooth, advantage-weighted quadratic regulariser in place of DPPO's hard mask.

    objective  r A - |A| / (2 delta) · mu · (r - 1)^2
    g = r · A · w,  w = 1 - sign(A (r - 1)) · |pi - mu| / delta

w falls linearly as the sampled token moves outward, is zero at |pi - mu| = delta and pulls back beyond.
Source: arXiv 2606.09821 Eqs. 8-9, Table 1 [F]. delta = 12.5 is the released value [F]; since |pi - mu| <= 1 it keeps
w within [0.92, 1.08], so the scale is disputed, and 0.15, DPPO's radius, is run beside it as a variant [I].
Shapes: signals [B, T] to g [B, T]. Detached: all, which gives the same gradient as differentiating the objective.
Public code: no cap on r; UniRL's port reports a clip fraction that is zero at 12.5.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from methods import MethodConfig, Signals, check_cap, check_positive, probability, register
from methods.masks import capped_ratio


@dataclass(frozen=True)
class Config(MethodConfig):
    delta: float = 12.5
    """The shift |pi - mu| at which the weight is zero."""
    ratio_cap: float | None = None
    """C of min(r, C), or None for no cap."""

    def __post_init__(self) -> None:
        check_positive("delta", self.delta)
        check_cap("ratio_cap", self.ratio_cap)


def weight(advantages: Tensor, logp_pi: Tensor, logp_mu: Tensor, delta: float) -> Tensor:
    """w of Eq. 9 (Table 1), in [1 - 1/delta, 1 + 1/delta]; shape of the inputs."""
    shift = probability(logp_pi) - probability(logp_mu)
    return 1.0 - torch.sign(advantages) * shift / delta


@register("drpo", title="DRPO", source="arXiv 2606.09821, Eqs. 8-9", mark="F", config=Config)
def coefficient(signals: Signals, config: Config) -> Tensor:
    """g = min(r, C) A w, [B, T]."""
    smooth = weight(signals.advantages, signals.logp_pi, signals.logp_mu, config.delta)
    return capped_ratio(signals, config.ratio_cap) * signals.advantages * smooth
