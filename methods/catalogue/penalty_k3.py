"""A k3 penalty in place of DRPO's regulariser: linear in the ratio, so blind to how probable the token is.

    objective  r A - lambda · (r - 1 - log r);   lambda = coefficient · |A|
    g = r · A - lambda · (r - 1)

Summed over tokens drawn from mu, r - 1 - log r is KL(mu || pi), here without the forward penalty's constant push.
Source: arXiv 2606.09821 Appendix C, a K3 penalty among the alternatives that stay below DRPO; its form and coefficient
were not seen [I]. coefficient 0.04 is DRPO's 1 / (2 delta) at the released 12.5, weighted with |A| as DRPO is [I].
Shapes: signals [B, T] to g [B, T]. Detached: all, which gives the same gradient as differentiating the objective.
Public code: none seen.
"""

from __future__ import annotations

from torch import Tensor

from methods import Signals, register
from methods.penalties import PenaltyConfig, strength


@register("penalty_k3", title="K3 penalty", source="arXiv 2606.09821, Appendix C", mark="I", config=PenaltyConfig)
def coefficient(signals: Signals, config: PenaltyConfig) -> Tensor:
    """g, [B, T]."""
    ratio = signals.ratio()
    return ratio * signals.advantages - strength(signals.advantages, config) * (ratio - 1.0)
