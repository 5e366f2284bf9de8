"""Finite-step mask: drops a token whose own step would end outside the trust region, farther out than it began.

    g = min(r, C) · A · M,   M = 0 where  D + dD(c) > delta  and  dD(c) > 0,  else 1
    dD(c) = log sum_i pi_i e^(c u_i) - c sum_i mu_i u_i,   u = e_k - pi,   c = step · A · min(r, C)

The exact change of the forward KL in place of its slope: a big step may carry a token out of the region that is still
inside, or overshoot a decrease. As step -> 0 it becomes the predictive mask. The condition dD > 0 keeps corrective
steps of tokens that stay outside.
Source: ours [N]; the Gaussian counterpart is Flow-DPPO's D_new > delta (arXiv 2606.11025, Appendix E). delta = 0.15 and
C = 5 from arXiv 2607.10848 [S]; step, the effective step size in the logits, is our choice.
Shapes: signals [B, T] and support [B, T, K + 1], or full [B, T, V], to g [B, T]. Detached: everything.
Public code: none.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from methods import Signals, check_positive, register
from methods.directions import Tail
from methods.finite_step import predicted_change
from methods.masks import TailMaskConfig, capped_ratio, divergence, masked_coefficient, tail_needs
from methods.support import with_support_rule


@dataclass(frozen=True)
class Config(TailMaskConfig):
    step: float = 0.1
    """Step in the logits per unit of A min(r, C)."""
    tail: Tail = "uniform"
    """How the change of D sees the ids outside the support; `full`: no support and no tail."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("step", self.step)


@register(
    "predictive_finite_step",
    title="Finite-step mask",
    source="this work, on arXiv 2607.10848, Eq. 13",
    mark="N",
    config=Config,
    needs=tail_needs,
)
def coefficient(signals: Signals, config: Config) -> Tensor:
    """g, [B, T]."""
    signals = with_support_rule(signals, config.support)
    size = config.step * signals.advantages * capped_ratio(signals, config.ratio_cap)
    change = predicted_change(signals, size, config.tail)
    distance = divergence(signals, "forward_kl", full=config.tail == "full")
    # The change already is that of the update A asks for; a direction is for A > 0.
    return masked_coefficient(
        signals, config, divergence=distance + change, direction=torch.sign(signals.advantages) * change
    )
