"""Strict comparisons that rounding cannot decide: a value at a threshold is neither above nor below it.

exp and log bring 0.8 - 0.6 to 0.20000000000000007; a token at the boundary keeps its gradient, whatever the last bits
say.
"""

from __future__ import annotations

import torch
from torch import Tensor

# Of a probability or a ratio: an exponential, a logarithm and a difference are each off by about one.
ROUNDINGS = 8


def above(value: Tensor, limit: Tensor | float) -> Tensor:
    """value > limit by more than rounding, bool in the broadcast shape."""
    limit = torch.as_tensor(limit, dtype=value.dtype, device=value.device)
    return value > limit + _slack(limit)


def below(value: Tensor, limit: Tensor | float) -> Tensor:
    """value < limit by more than rounding, bool in the broadcast shape."""
    limit = torch.as_tensor(limit, dtype=value.dtype, device=value.device)
    return value < limit - _slack(limit)


def _slack(limit: Tensor) -> Tensor:
    # Values are of size one or of the limit's; an infinite limit needs none.
    return (ROUNDINGS * torch.finfo(limit.dtype).eps * limit.abs().clamp(min=1.0)).nan_to_num(posinf=0.0)
