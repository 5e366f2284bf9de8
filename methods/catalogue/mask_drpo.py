"""Mask-DRPO: DRPO's regulariser only outside DPPO's region, plain policy gradient inside.

    objective  r A - 1[|pi - mu| > radius] · |A| / (2 delta) · mu · (r - 1)^2,   the indicator constant
    g = r · A · w,  w = 1 inside,  1 - sign(A (r - 1)) · |pi - mu| / delta outside

Source: arXiv 2606.09821 Fig. 11 [S]: close to full DRPO. The formula was not seen; that the region is DPPO's binary
one, on both sides of mu, is our reading [I]. delta = 12.5 as released [F], radius 0.15 as DPPO runs there [F].
Shapes: signals [B, T] to g [B, T]. Detached: all, which gives the same gradient as differentiating the objective.
Public code: none seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from methods import Signals, check_positive, register
from methods.catalogue import drpo
from methods.masks import capped_ratio
from methods.measures import binary_tv
from methods.thresholds import above


@dataclass(frozen=True)
class Config(drpo.Config):
    radius: float = 0.15
    """The shift |pi - mu| up to which the weight is 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("radius", self.radius)


@register("mask_drpo", title="Mask-DRPO", source="arXiv 2606.09821, Fig. 11", mark="I", config=Config)
def coefficient(signals: Signals, config: Config) -> Tensor:
    """g = min(r, C) A w, [B, T]; at the radius a token is inside."""
    smooth = drpo.weight(signals.advantages, signals.logp_pi, signals.logp_mu, config.delta)
    inside = ~above(binary_tv(signals.logp_mu, signals.logp_pi), config.radius)
    return capped_ratio(signals, config.ratio_cap) * signals.advantages * torch.where(inside, 1.0, smooth)
