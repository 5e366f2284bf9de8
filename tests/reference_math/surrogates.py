"""PPO's clipped surrogate, whose gradient the coefficient of `methods.clipping` is held against."""

from __future__ import annotations

import torch
from torch import Tensor

from methods.clipping import ClipConfig


def clipped_surrogate(advantages: Tensor, ratio: Tensor, config: ClipConfig) -> Tensor:
    """The objective itself (PPO's loss is its negative), differentiable in r: for values, not for training.

    min(r A, clip(r) A), and for A < 0 with a dual clip not below c A.
    """
    value = torch.minimum(ratio * advantages, ratio.clamp(1 - config.eps_low, 1 + config.eps_high) * advantages)
    if config.dual_clip is None:
        return value
    return torch.where(advantages < 0, torch.maximum(value, config.dual_clip * advantages), value)
