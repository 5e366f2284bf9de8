"""PPO / GRPO with clip-higher: the trust region is a band of the sampled importance ratio, wider above than below.

    g = min(r, C) · A,  or 0 where  A > 0 and r > 1 + eps_high,  or  A < 0 and r < 1 - eps_low

Source: gradient of min(r A, clip(r, 1 - eps_low, 1 + eps_high) A), DPPO paper (arXiv 2602.04879) Eq. 10, with C of
Eq. 23 [F]; widths 0.2 and 0.28 as in the DRPO paper's baselines [F]. The ratio is against the rollout policy. A dual
clip c > 1 drops A < 0 with r > c [F, verl].
Shapes: signals [B, T] to g [B, T]. Detached: r.
Public code: verl's `vanilla` has c = 3 by default, and its DPPO losses read that same key as their ratio cap.
"""

from __future__ import annotations

from torch import Tensor

from methods import Signals, register
from methods.clipping import ClipHigherConfig, clipped_coefficient


@register(
    "ppo_clip_higher",
    title="PPO/GRPO clip-higher",
    source="arXiv 2602.04879, Eq. 10",
    mark="F",
    config=ClipHigherConfig,
)
def coefficient(signals: Signals, config: ClipHigherConfig) -> Tensor:
    """g, [B, T]; at the edge of the band a token keeps its gradient."""
    return clipped_coefficient(signals, config)
