"""Group-relative advantages: a response's reward against the mean of its prompt's group.

Shapes: G responses of a group on the last axis. Source: DeepSeekMath (arXiv 2402.03300) [F] divides by the group's
standard deviation; the three papers replicated here do not [F].
"""

from __future__ import annotations

import torch
from torch import Tensor

# A spread below a few units in the last place of the largest reward is rounding, not a difference of rewards.
ROUNDING = 8


def group_advantages(rewards: Tensor, *, normalise: bool = False, eps: float = 1e-6) -> Tensor:
    """R - mean(R) over the last axis, [..., G], float32 or better; with `normalise` divided by std + eps.

    std has the divisor G - 1 (verl, TRL). A group without spread gives zeros, and so does a group of one: there is
    nothing to compare with (verl returns the raw reward there).
    Raises ValueError for a reward that is not finite and for a negative eps.
    """
    if not eps >= 0:
        raise ValueError(f"eps = {eps!r}: allowed is a number >= 0")
    rewards = rewards.to(torch.promote_types(rewards.dtype, torch.float32))
    bad = ~torch.isfinite(rewards)
    if bad.any():
        position = tuple(int(i) for i in bad.nonzero()[0])
        raise ValueError(f"rewards{list(position)} = {rewards[position].item()} is not finite")
    if rewards.shape[-1] < 2:
        return torch.zeros_like(rewards)
    # Differences to one member first: a mean of equal decimals (0.1) need not equal them.
    shifted = rewards - rewards[..., :1]
    centred = shifted - shifted.mean(-1, keepdim=True)
    scale = rewards.abs().amax(-1, keepdim=True)
    spread = shifted.amax(-1, keepdim=True) - shifted.amin(-1, keepdim=True)
    flat = spread <= ROUNDING * torch.finfo(rewards.dtype).eps * scale
    if normalise:
        deviation = centred.square().sum(-1, keepdim=True).div(rewards.shape[-1] - 1).sqrt()
        centred = centred / torch.where(flat, 1.0, deviation + eps)
    return torch.where(flat, 0.0, centred)
