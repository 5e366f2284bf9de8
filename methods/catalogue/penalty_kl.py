"""A KL penalty in place of DRPO's regulariser, as a single-sample estimate on the sampled token.

    objective  r A - lambda · r log r  (reverse)   or   r A + lambda · log r  (forward);   lambda = coefficient · |A|
    g = r · A - lambda · r (1 + log r)             or   r · A + lambda

Summed over tokens drawn from mu, r log r is KL(pi || mu) and -log r is KL(mu || pi). One sample shows what is lost: the
forward penalty is a constant push on log pi, and even at pi = mu either adds -lambda or +lambda, which only the
expectation removes.
Source: arXiv 2606.09821 Appendix C, a KL penalty among the alternatives that stay below DRPO; its form and coefficient
were not seen [I]. coefficient 0.04 is DRPO's 1 / (2 delta) at the released 12.5, weighted with |A| as DRPO is [I].
Shapes: signals [B, T] to g [B, T]. Detached: all, which gives the same gradient as differentiating the objective.
Public code: none seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from torch import Tensor

from methods import Signals, check_choice, log_ratio, register
from methods.penalties import PenaltyConfig, strength

Direction = Literal["reverse", "forward"]


@dataclass(frozen=True)
class Config(PenaltyConfig):
    direction: Direction = "reverse"
    """`reverse`: KL(pi || mu); `forward`: KL(mu || pi)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("direction", self.direction, get_args(Direction))


@register("penalty_kl", title="KL penalty", source="arXiv 2606.09821, Appendix C", mark="I", config=Config)
def coefficient(signals: Signals, config: Config) -> Tensor:
    """g, [B, T]."""
    ratio, strengths = signals.ratio(), strength(signals.advantages, config)
    if config.direction == "forward":
        return ratio * signals.advantages + strengths
    logs = log_ratio(signals.logp_pi, signals.logp_mu)
    return ratio * signals.advantages - strengths * ratio * (1.0 + logs)
