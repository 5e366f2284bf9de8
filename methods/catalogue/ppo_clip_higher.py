"""PPO / GRPO with clip-higher: the trust region is a band of the sampled importance ratio.

    g = min(r, C) · A,  or 0 where  A > 0 and r > 1 + eps_high,  or  A < 0 and r < 1 - eps_low

Source: gradient of -min(r A, clip(r, 1 - eps_low, 1 + eps_high) A), DPPO paper (arXiv 2602.04879) Eq. 10, with C of
Eq. 23 [F]; widths .2 and .28 as in the DRPO paper's baselines [F]. The ratio is against the rollout policy; GRPO is
this loss with group-centred advantages. A dual clip c > 1 drops A < 0 with r > c [F, verl].
Shapes: signals [B, T] to g [B, T]. Detached: r.
Public code: verl's `vanilla` has c = 3 by default, and its DPPO losses read that same key as their ratio cap.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from methods.config import MethodConfig, MethodConfigError, check_cap, check_positive
from methods.masks import capped_ratio
from methods.registry import register
from methods.signals import Signals


@dataclass(frozen=True)
class Config(MethodConfig):
    """eps_low, eps_high: widths of the band; dual_clip: c or None; ratio_cap: C of min(r, C), or None."""

    eps_low: float = 0.2
    eps_high: float = 0.28
    dual_clip: float | None = None
    ratio_cap: float | None = 5.0

    def __post_init__(self) -> None:
        check_positive("eps_low", self.eps_low)
        if self.eps_low > 1:
            raise MethodConfigError(f"eps_low = {self.eps_low!r}: allowed is 0 < eps_low <= 1")
        check_positive("eps_high", self.eps_high)
        check_cap("dual_clip", self.dual_clip)
        check_cap("ratio_cap", self.ratio_cap)


@register("ppo_clip_higher", title="PPO/GRPO clip-higher", source="arXiv 2602.04879, Eq. 10", mark="F", config=Config)
def coefficient(signals: Signals, config: Config) -> Tensor:
    """g, [B, T]; at the edge of the band a token keeps its gradient."""
    ratio, advantages = signals.ratio(), signals.advantages
    dropped = (advantages > 0) & (ratio > 1 + config.eps_high) | (advantages < 0) & (ratio < 1 - config.eps_low)
    if config.dual_clip is not None:
        dropped |= (advantages < 0) & (ratio > config.dual_clip)
    return torch.where(dropped, 0.0, capped_ratio(signals, config.ratio_cap) * advantages)
