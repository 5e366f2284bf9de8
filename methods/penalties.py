"""What the penalties of the DRPO paper's Appendix C share: the strength lambda, weighted with |A| or not; and k3."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from methods.config import MethodConfig, check_flag, check_positive


@dataclass(frozen=True)
class PenaltyConfig(MethodConfig):
    """Strength of a penalty."""

    coefficient: float = 0.04
    """Strength of the penalty."""
    advantage_weighted: bool = True
    """Whether the penalty is multiplied by |A|."""

    def __post_init__(self) -> None:
        check_positive("coefficient", self.coefficient)
        check_flag("advantage_weighted", self.advantage_weighted)


def strength(advantages: Tensor, config: PenaltyConfig) -> Tensor:
    """lambda of each token, shape of the advantages."""
    size = advantages.abs() if config.advantage_weighted else torch.ones_like(advantages)
    return config.coefficient * size


def k3(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """The estimate ref/pi - 1 - log(ref/pi) of KL(pi || ref) from a token drawn from pi, not negative.

    Any shape, the same for both; float32 or better, differentiable where finite. Nothing is limited: a token that one
    side holds impossible is infinitely far away, one that both do is at 0.
    """
    dtype = torch.promote_types(torch.promote_types(logp.dtype, ref_logp.dtype), torch.float32)
    impossible = (logp == -torch.inf) & (ref_logp == -torch.inf)
    log_ratio = torch.where(impossible, 0.0, ref_logp.to(dtype) - logp.to(dtype))
    # expm1: for close policies the leading terms cancel. inf - inf would be NaN where pi = 0 < ref.
    value = torch.where(log_ratio == torch.inf, torch.inf, torch.expm1(log_ratio) - log_ratio)
    return value.clamp(min=0.0)
