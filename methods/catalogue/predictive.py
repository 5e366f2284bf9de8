"""Predictive divergence mask, any measure and any view of the tail.

    g = min(r, C) · A · M,   M = 0 where  D > delta  and  A · d > 0,  else 1
    d = h_k - sum_S pi_i h_i - (c2 / pi_T) h_T,   h_i = pi_i (g_i - sum_j pi_j g_j),  g_i = dD/d pi_i

d is the change of D per unit step along e_k - pi in the logits, k the sampled token. c2, the collision mass of the
tail T: pi_T^2 (`aggregated`), pi_T^2 / (n - m) (`uniform`), 0 (`none`), or as measured over the vocabulary
(`collision`, the slope of the very D that is compared with delta). `full`: no tail, D and d over all n ids.
Source: arXiv 2607.10848 Eqs. 10, 11 (forward KL, Appendix D: TV), 13, 14 [S]; other measures, collision and full [N].
delta = 0.15 and C = 5 are the paper's for the forward KL [S]; no paper gives a radius for another measure.
Shapes: signals [B, T] and support [B, T, K + 1], or full [B, T, V], to g [B, T]. Detached: everything.
Public code: none released by the authors.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from methods import Signals, check_choice, register
from methods.directions import predictive_direction
from methods.masks import TailMaskConfig, divergence, masked_coefficient, tail_needs
from methods.measures import BINARY_MEASURES, MEASURES
from methods.support import with_support_rule


@dataclass(frozen=True)
class Config(TailMaskConfig):
    measure: str = "forward_kl"
    """Measure of the direction, and of D unless `divergence` names another."""
    divergence: str | None = None
    """Measure of D, or None for that of the direction."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("measure", self.measure, MEASURES)
        if self.divergence is not None:
            check_choice("divergence", self.divergence, (*MEASURES, *BINARY_MEASURES))


@register(
    "predictive",
    title="Predictive mask, chosen measure and tail",
    source="arXiv 2607.10848, Eqs. 7, 10-13",
    mark="N",
    config=Config,
    needs=tail_needs,
)
def coefficient(signals: Signals, config: Config) -> Tensor:
    """g, [B, T]."""
    signals = with_support_rule(signals, config.support)
    return masked_coefficient(
        signals,
        config,
        divergence=divergence(signals, config.divergence or config.measure, full=config.tail == "full"),
        direction=predictive_direction(signals, MEASURES[config.measure], config.tail),
    )
