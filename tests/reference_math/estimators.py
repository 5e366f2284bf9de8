"""Single-sample estimates of KL(pi || ref) from a token drawn from pi: k1, k2, k3.

Value and gradient are two questions. With x = log pi - log ref of the sampled token: k1 = x has the right mean and,
as a loss, mean gradient zero; k2 = x^2 / 2 has a biased mean and the right mean gradient; k3 = e^-x - 1 + x has the
right mean, is never negative, and as a loss has the mean gradient of KL(ref || pi). The tests show all three [N].
Shapes: any, the same for both arguments; float32 or better, differentiable where finite. Nothing is limited: a token
that one side holds impossible is infinitely far away, one that both do is at 0.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from methods.penalties import k3


def k1(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """log(pi / ref)."""
    dtype = torch.promote_types(torch.promote_types(logp.dtype, ref_logp.dtype), torch.float32)
    impossible = (logp == -torch.inf) & (ref_logp == -torch.inf)
    return torch.where(impossible, 0.0, logp.to(dtype) - ref_logp.to(dtype))


def k2(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """(log(pi / ref))^2 / 2."""
    return 0.5 * k1(logp, ref_logp).square()


ESTIMATORS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"k1": k1, "k2": k2, "k3": k3}
