"""IcePop: PPO around the recomputed anchor, and tokens on which trainer and engine disagree too much are dropped.

    g = rho · r' · A · M,  or 0 where rho is outside [lower, upper];   rho = pi_old / mu,  r' = pi / pi_old

M is PPO's clip mask on r'. Unlike a trust region the filter is on pi_old / mu, which no update changes.
Source: Ring-1T (arXiv 2510.18855); bounds 0.5 and 5 [F]; PPO's widths 0.2 and 0.2 [I].
Shapes: signals [B, T] to g [B, T]; needs logp_old [B, T]. Detached: rho, r', M.
Public code: prime-rl filters pi / mu of the current policy, without an anchor, at 0.2 and 5; `mis` with level token
and these bounds is the same filter.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from methods import Needs, Signals, check_non_negative, register
from methods.clipping import BandConfig
from methods.corrections import check_bounds, corrected_coefficient, filtered, mismatch


@dataclass(frozen=True)
class Config(BandConfig):
    lower: float = 0.5
    """Tokens with rho below this are dropped."""
    upper: float = 5.0
    """Tokens with rho above this are dropped."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_non_negative("lower", self.lower)
        check_bounds(self.lower, self.upper)


@register(
    "icepop",
    title="IcePop",
    source="arXiv 2510.18855",
    mark="F",
    config=Config,
    needs=Needs.RECOMPUTED_ANCHOR,
)
def coefficient(signals: Signals, config: Config) -> Tensor:
    """g, [B, T]."""
    weight = filtered(mismatch(signals, "token"), config.lower, config.upper)
    return corrected_coefficient(signals, config, weight)
