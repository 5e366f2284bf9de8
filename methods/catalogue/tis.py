"""TIS correction: PPO around the recomputed anchor, weighted with the truncated mismatch of trainer and engine.

    g = min(rho, C) · r' · A · M,   rho = pi_old / mu,  r' = pi / pi_old

M is PPO's clip mask on r'. rho is a token's ratio, the product over the response (`level` sequence), or the geometric
mean over it (geometric).
Source: truncated importance sampling as verl's rollout correction has it, C = 2; no arXiv paper of its own [F]; PPO's
widths 0.2 and 0.2 [I].
Shapes: signals [B, T] to g [B, T]; needs logp_old [B, T]. Detached: rho, r', M.
Public code: verl (`rollout_is` token or sequence) can also normalise the weights by their batch mean, which is left
out here: it makes rows depend on each other.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from methods import Needs, Signals, check_positive, register
from methods.corrections import LevelConfig, corrected_coefficient, mismatch, truncated


@dataclass(frozen=True)
class Config(LevelConfig):
    upper: float = 2.0
    """C of min(rho, C)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("upper", self.upper)


@register(
    "tis",
    title="TIS correction",
    source="verl rollout correction (no arXiv paper)",
    mark="F",
    config=Config,
    needs=Needs.RECOMPUTED_ANCHOR,
)
def coefficient(signals: Signals, config: Config) -> Tensor:
    """g, [B, T]."""
    return corrected_coefficient(signals, config, truncated(mismatch(signals, config.level), config.upper))
