"""PPO with its own symmetric clip: the trust region is a band of the sampled importance ratio.

    g = r · A,  or 0 where  A > 0 and r > 1 + eps,  or  A < 0 and r < 1 - eps

Source: gradient of min(r A, clip(r, 1 - eps, 1 + eps) A), PPO (arXiv 1707.06347) Eq. 7, eps = 0.2 [F]. The optional
dual clip c > 1 (arXiv 1912.09729 [F]) drops A < 0 with r > c. Neither a dual clip nor a cap on r by default; the
ratio is against the rollout policy, as in every baseline of the DPPO and DRPO papers [F].
Shapes: signals [B, T] to g [B, T]. Detached: r.
Public code: verl's `vanilla` is this loss with c = 3 by default; its limit of +-20 on the log-ratio lies in the graph,
so that tokens beyond it get no gradient on either side.
"""

from __future__ import annotations

from torch import Tensor

from methods import Signals, register
from methods.clipping import ClipConfig, clipped_coefficient


@register("ppo_clip", title="PPO clip", source="arXiv 1707.06347, Eq. 7", mark="F", config=ClipConfig)
def coefficient(signals: Signals, config: ClipConfig) -> Tensor:
    """g, [B, T]; at the edge of the band a token keeps its gradient."""
    return clipped_coefficient(signals, config)
