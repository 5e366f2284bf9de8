"""Predictive DRPO, ours: DRPO whose regulariser acts by the predicted direction of the divergence, not by the ratio.

    objective  r A - sg[sign(d) sign(r - 1)] · |A| / (2 delta) · mu · (r - 1)^2
    g = min(r, C) · A · w,   w = 1 - sign(A d) · |pi - mu| / delta

d is the predicted change of the divergence for a step on the sampled token, as in the predictive masks. DRPO weakens
a step that moves the sampled token away from mu, sign(A (r - 1)) > 0. That sign is the local term of d alone: where
the softmax coupling decides, DRPO weakens a step that lowers the divergence, or strengthens one that raises it. Here
every step that raises it is weakened and every one that lowers it strengthened, by the same |pi - mu| / delta. Where d
and r - 1 agree in sign it is DRPO; at d = 0 the weight is 1; the weight stays within 1 - 1/delta and 1 + 1/delta.
Where they disagree the pull is away from mu on this token, on purpose, and is no gradient of a penalty on r.
Source: ours, from arXiv 2606.09821 Eq. 9 and arXiv 2607.10848 Eqs. 10-11 [N]. delta = 0.15: at the released 12.5 no
weight could change sign. The uniform tail errs least of the rules that need nothing but top-K.
Shapes: signals [B, T] and support [B, T, K + 1] to g [B, T]. Detached: everything.
Public code: none.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from methods import Signals, check_choice, register
from methods.catalogue import drpo
from methods.directions import TAILS, Tail, predictive_direction
from methods.masks import capped_ratio, tail_needs
from methods.measures import MEASURES, binary_tv


@dataclass(frozen=True)
class Config(drpo.Config):
    delta: float = 0.15
    """The shift |pi - mu| at which the weight of an outward step is zero."""
    measure: str = "forward_kl"
    """Measure of the direction d."""
    tail: Tail = "uniform"
    """How d sees the ids outside the support; `full`: no support and no tail."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("measure", self.measure, MEASURES)
        check_choice("tail", self.tail, TAILS)


@register(
    "predictive_drpo",
    title="Predictive DRPO",
    source="ours, from arXiv 2606.09821 and 2607.10848",
    mark="N",
    config=Config,
    needs=tail_needs,
)
def coefficient(signals: Signals, config: Config) -> Tensor:
    """g = min(r, C) A w, [B, T]."""
    direction = predictive_direction(signals, MEASURES[config.measure], config.tail)
    outward = torch.sign(signals.advantages) * torch.sign(direction)
    weight = 1.0 - outward * binary_tv(signals.logp_mu, signals.logp_pi) / config.delta
    return capped_ratio(signals, config.ratio_cap) * signals.advantages * weight
