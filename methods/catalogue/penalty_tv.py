"""A total-variation penalty in place of DRPO's regulariser: a constant pull towards mu, however far the token is.

    objective  r A - lambda · |r - 1| / 2;   lambda = coefficient · |A|
    g = r · (A - (lambda / 2) sign(r - 1))

Summed over tokens drawn from mu, |r - 1| / 2 is TV(mu, pi). The weight has two values and no boundary.
Source: arXiv 2606.09821 Appendix C, a TV penalty among the alternatives that stay below DRPO; its form and coefficient
were not seen [I]. coefficient 0.04 is DRPO's 1 / (2 delta) at the released 12.5, weighted with |A| as DRPO is [I].
Shapes: signals [B, T] to g [B, T]. Detached: all, which gives the same gradient as differentiating the objective.
Public code: none seen.
"""

from __future__ import annotations

import torch
from torch import Tensor

from methods import Signals, register
from methods.directions import ratio_direction
from methods.penalties import PenaltyConfig, strength


@register("penalty_tv", title="TV penalty", source="arXiv 2606.09821, Appendix C", mark="I", config=PenaltyConfig)
def coefficient(signals: Signals, config: PenaltyConfig) -> Tensor:
    """g, [B, T]; at r = 1, the kink, the penalty has no slope."""
    pull = 0.5 * strength(signals.advantages, config) * torch.sign(ratio_direction(signals))
    return signals.ratio() * (signals.advantages - pull)
