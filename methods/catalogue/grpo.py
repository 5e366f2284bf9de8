"""GRPO: PPO's clipped loss on group-centred advantages; as a coefficient it is `ppo_clip`.

    g = r · A,  or 0 where  A > 0 and r > 1 + eps,  or  A < 0 and r < 1 - eps

What makes it GRPO stands outside the coefficient: A is the reward minus its group's mean, divided by the group's
standard deviation in the original and not in the three papers replicated here, and a response
counts by the mean over its tokens (aggregation seq-mean-token-mean). The original's KL penalty to a reference policy
is not part of it: all three papers set it to zero [F].
Source: DeepSeekMath (arXiv 2402.03300) Eq. 3, eps = 0.2 [F]. Clip-higher is `ppo_clip_higher`.
Shapes: signals [B, T] to g [B, T]. Detached: r.
Public code: verl runs it as `vanilla` with a dual clip of c = 3; TRL and verl default to other aggregations.
"""

from __future__ import annotations

from torch import Tensor

from methods import Signals, register
from methods.clipping import ClipConfig, clipped_coefficient


@register("grpo", title="GRPO", source="arXiv 2402.03300, Eq. 3", mark="F", config=ClipConfig)
def coefficient(signals: Signals, config: ClipConfig) -> Tensor:
    """g, [B, T]; the same number as ppo_clip gives for the same options."""
    return clipped_coefficient(signals, config)
