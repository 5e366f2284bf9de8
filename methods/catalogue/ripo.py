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

from methods import MethodConfig, MethodConfigError, Signals, check_cap, check_fraction, check_positive, register
from methods.clipping import beyond_band
from methods.masks import capped_ratio


@dataclass(frozen=True)
class Config(MethodConfig):
    delta: float = 0.05
    """Of the band's width w = sqrt(delta / mu)."""
    lowest: float = 0.5
    """The band's lower end is not below this."""
    highest: float = 10.0
    """The band's upper end is not above this."""
    ratio_cap: float | None = None
    """C of min(r, C), or None for no cap."""

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
