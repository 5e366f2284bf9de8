"""Certified predictive mask: the full-vocabulary direction where a top-K row proves its sign, else a fall-back.

    g = min(r, C) · A · M,   M = 0 where  D > delta  and  A · d > 0,  else 1
    d = sign of [a, b] where 0 is outside of it, else the fall-back;   forward KL, without what is known of sum pi^2:
    a = R - pi_T^2,   b = R + pi_T min(mu_(K), mu_T) - pi_T^2 / (n - m),   each moved out by the rounding of log-probs
    R = (pi_k - mu_k) + sum_S pi_i (mu_i - pi_i)

[a, b] contains the direction over all n ids, of which the row shows m. D is reduced to top-K.
Source: ours [N]; D and mask: arXiv 2607.10848 Eq. 13, delta = 0.15, C = 5 [S]. `precision` names the format in which
log-probs were stored; `fallback` is keep, ratio, or a tail rule of the predictive direction.
Shapes: signals [B, T] and support [B, T, K + 1] to g [B, T]. Detached: everything.
Public code: none.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from methods import Needs, Signals, check_choice, register
from methods.certificate import CERTIFIED_MEASURES, FALLBACKS, ROUNDINGS, certified_direction
from methods.masks import TopKMaskConfig, divergence, masked_coefficient
from methods.measures import MEASURES
from methods.support import with_support_rule


@dataclass(frozen=True)
class Config(TopKMaskConfig):
    measure: str = "forward_kl"
    """Measure of D and of its direction."""
    fallback: str = "keep"
    """What decides where the row leaves the sign open: keep, ratio, or a tail rule."""
    precision: str = "float32"
    """Format in which the log-probs were stored."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("measure", self.measure, CERTIFIED_MEASURES)
        check_choice("fallback", self.fallback, FALLBACKS)
        check_choice("precision", self.precision, ROUNDINGS)


@register(
    "predictive_certified",
    title="Predictive mask, certified sign",
    source="this work, on arXiv 2607.10848, Eq. 13",
    mark="N",
    config=Config,
    needs=Needs.TOP_K | Needs.SUM_PI_SQUARED,
)
def coefficient(signals: Signals, config: Config) -> Tensor:
    """g, [B, T]."""
    if signals.sum_pi_squared is None:
        raise ValueError("signals.sum_pi_squared is missing: the certificate needs it over the whole vocabulary")
    measure = MEASURES[config.measure]
    return masked_coefficient(
        signals,
        config,
        divergence=divergence(with_support_rule(signals, config.support), config.measure),
        direction=certified_direction(signals, measure, config.fallback, ROUNDINGS[config.precision], config.support),
    )
