"""The estimate k3 of KL(pi || ref) from a token drawn from pi.

Shapes: any, the same for both arguments; float32 or better, differentiable where finite. Nothing is limited: a token
that one side holds impossible is infinitely far away, one that both do is at 0.
"""

from __future__ import annotations

import torch
from torch import Tensor


def k3(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """ref/pi - 1 - log(ref/pi), not negative."""
    dtype = torch.promote_types(torch.promote_types(logp.dtype, ref_logp.dtype), torch.float32)
    impossible = (logp == -torch.inf) & (ref_logp == -torch.inf)
    log_ratio = torch.where(impossible, 0.0, ref_logp.to(dtype) - logp.to(dtype))
    # expm1: for close policies the leading terms cancel. inf - inf would be NaN where pi = 0 < ref.
    value = torch.where(log_ratio == torch.inf, torch.inf, torch.expm1(log_ratio) - log_ratio)
    return value.clamp(min=0.0)
