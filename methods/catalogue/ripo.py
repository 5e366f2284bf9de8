"""RIPO: PPO's clip with a width that grows as the token gets rarer.

    g = r · A,  or 0 where  A > 0 and r > min(1 + w, 10),  or  A < 0 and r < max(1 - w, 0.5);   w = sqrt(delta / mu)

Between PPO's constant width and the delta / mu of a bound on |pi - mu| (DRPO's key step).
Source: arXiv 2607.10169, delta = 0.05 and a ratio within [0.5, 10] [S]. The full text was not seen: that the two bounds
limit the ends of the band, and that the ratio is not capped otherwise, is our reading [I].
Shapes: signals [B, T] to g [B, T]. Detached: r, w.
Public code: none seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from methods.clipping import beyond_band
from methods.config import MethodConfig, MethodConfigError, check_cap, check_fraction, check_positive
from methods.masks import capped_ratio
from methods.registry import register
from methods.signals import Signals


@dataclass(frozen=True)
class Config(MethodConfig):
    """delta: w = sqrt(delta / mu); lowest, highest: limits of the band's ends; ratio_cap: C of min(r, C), or None."""

    delta: float = 0.05
    lowest: float = 0.5
    highest: float = 10.0
    ratio_cap: float | None = None

    def __post_init__(self) -> None:
        check_positive("delta", self.delta)
        check_fraction("lowest", self.lowest)
        check_positive("highest", self.highest)
        if self.highest < 1:
            raise MethodConfigError(f"highest = {self.highest!r}: allowed is a finite number >= 1")
        check_cap("ratio_cap", self.ratio_cap)


@register("ripo", title="RIPO", source="arXiv 2607.10169", mark="S", config=Config)
def coefficient(signals: Signals, config: Config) -> Tensor:
    """g, [B, T]; at the edge of the band a token keeps its gradient."""
    ratio = signals.ratio()
    # An impossible token (mu = 0) has an infinite width, which the limits make finite.
    width = config.delta**0.5 * (-0.5 * signals.logp_mu.to(ratio.dtype).clamp(max=0.0)).exp()
    low, high = (1.0 - width).clamp(min=config.lowest), (1.0 + width).clamp(max=config.highest)
    flat = beyond_band(signals.advantages, ratio, low, high)
    return torch.where(flat, 0.0, capped_ratio(signals, config.ratio_cap) * signals.advantages)
