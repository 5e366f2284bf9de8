"""What the penalties of the DRPO paper's Appendix C share: the strength lambda, weighted with |A| or not."""

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
