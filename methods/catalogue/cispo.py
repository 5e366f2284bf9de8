"""CISPO: the importance weight is clipped, the token is not; every token keeps the gradient of its log-prob.

    g = clip(r, 1 - eps_low, 1 + eps_high) · A

Source: MiniMax-M1 (arXiv 2506.13585) Eqs. 4-5 [F]; eps_low = 1 switches the lower bound off (a ratio is never below
0), as in the paper's setting, and 1 + eps_high = 5 is the DPPO paper's C for it (arXiv 2602.04879; 3 in its stability
study) [F]. So the default is PG-TIS.
Shapes: signals [B, T] to g [B, T]. Detached: the clipped weight; a gradient through the clip would undo the method.
Public code: verl and slime turn PPO's eps_low on as a lower bound, which raises the weight of stale tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from methods import Signals, register
from methods.clipping import BandConfig


@dataclass(frozen=True)
class Config(BandConfig):
    eps_low: float = 1.0
    """The weight is at least 1 - eps_low; 1 means no lower bound."""
    eps_high: float = 4.0
    """The weight is at most 1 + eps_high."""


@register("cispo", title="CISPO", source="arXiv 2506.13585, Eqs. 4-5", mark="F", config=Config)
def coefficient(signals: Signals, config: Config) -> Tensor:
    """g, [B, T]."""
    return signals.ratio().clamp(1 - config.eps_low, 1 + config.eps_high) * signals.advantages
