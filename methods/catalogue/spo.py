"""SPO: PPO's band as a quadratic penalty on the ratio, so that a token beyond it is pulled back, not dropped.

    objective  r A - |A| / (2 eps) · (r - 1)^2
    g = r · A · (1 - sign(A) (r - 1) / eps)

The optimum of one token is r = 1 + sign(A) eps. The weight is unbounded in r: a rare token (small mu) whose
probability moves a little moves its ratio a lot, which is the DRPO paper's case against it.
Source: arXiv 2401.16025, as arXiv 2606.09821 Eq. 5 gives it [F]; eps = 12.5 as that paper runs it [F]. The original's
own eps (0.2 from memory) is unchecked [I].
Shapes: signals [B, T] to g [B, T]. Detached: all, which gives the same gradient as differentiating the objective.
Public code: the DRPO authors' verl branch has it with clip_ratio = 12.5.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from methods import MethodConfig, Signals, check_positive, register


@dataclass(frozen=True)
class Config(MethodConfig):
    eps: float = 12.5
    """The |r - 1| at which the weight is zero."""

    def __post_init__(self) -> None:
        check_positive("eps", self.eps)


@register("spo", title="SPO", source="arXiv 2401.16025; 2606.09821, Eq. 5", mark="F", config=Config)
def coefficient(signals: Signals, config: Config) -> Tensor:
    """g, [B, T]."""
    ratio, advantages = signals.ratio(), signals.advantages
    return ratio * advantages * (1.0 - torch.sign(advantages) * (ratio - 1.0) / config.eps)
