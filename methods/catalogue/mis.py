"""MIS correction: PPO around the recomputed anchor, weighted with rho; what lies outside its bounds is dropped.

    g = rho · r' · A · M,  or 0 where rho > upper (or rho < lower);   rho = pi_old / mu,  r' = pi / pi_old

M is PPO's clip mask on r'. rho is a token's ratio, the product over the response (`level` sequence: whole responses
are dropped), or the geometric mean over it (geometric: the length-normalised filter, lower 0.999 and upper 1.001 [F]).
Source: masked importance sampling as verl's rollout correction has it, upper 2; no arXiv paper of its own [F]; PPO's
widths 0.2 and 0.2 [I].
Shapes: signals [B, T] to g [B, T]; needs logp_old [B, T]. Detached: rho, r', M.
Public code: verl combines any weight with any rejection statistic and takes rejected tokens out of the mask, so out of
the denominator of a mean too; here they stay in it, as a dropped token of any other method does.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from methods import Needs, Signals, register
from methods.corrections import LevelConfig, check_bounds, corrected_coefficient, filtered, mismatch


@dataclass(frozen=True)
class Config(LevelConfig):
    lower: float | None = None
    """What has a rho below this is dropped; None: no lower bound."""
    upper: float = 2.0
    """What has a rho above this is dropped."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bounds(self.lower, self.upper)


@register(
    "mis",
    title="MIS correction",
    source="verl rollout correction (no arXiv paper)",
    mark="F",
    config=Config,
    needs=Needs.RECOMPUTED_ANCHOR,
)
def coefficient(signals: Signals, config: Config) -> Tensor:
    """g, [B, T]."""
    weight = filtered(mismatch(signals, config.level), config.lower, config.upper)
    return corrected_coefficient(signals, config, weight)
