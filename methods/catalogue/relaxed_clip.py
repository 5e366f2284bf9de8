"""Clip-higher without its clip for rare tokens: the DPPO paper's ablation of what PPO's ratio does to them.

    g = min(r, C) · A,  or 0 where  mu >= alpha (or that side is not relaxed)  and
        A > 0 and r > 1 + eps_high,  or  A < 0 and r < 1 - eps_low

`side` says which clip is removed below alpha: the one at 1 + eps_high (high), at 1 - eps_low (low), or both.
Source: DPPO paper (arXiv 2602.04879) Figs. 6-7: alpha 0 to 0.7, the three sides at alpha = 0.1, both is best [F];
widths 0.2 and 0.28 [F], C = 5 as in its scaling runs [I].
Shapes: signals [B, T] to g [B, T]. Detached: everything.
Public code: Stable-RL's `ppo_ablation_*`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from torch import Tensor

from methods import MethodConfigError, Signals, check_choice, check_non_negative, probability, register
from methods.clipping import ClipHigherConfig, clipped_coefficient

Side = Literal["high", "low", "both"]


@dataclass(frozen=True)
class Config(ClipHigherConfig):
    alpha: float = 0.1
    """Tokens with mu below this are relaxed."""
    side: Side = "both"
    """Which end of the clip is removed for them: high, low or both."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_non_negative("alpha", self.alpha)
        if self.alpha > 1:
            raise MethodConfigError(f"alpha = {self.alpha!r}: allowed is 0 <= alpha <= 1")
        check_choice("side", self.side, get_args(Side))


@register("relaxed_clip", title="Relaxed clip", source="arXiv 2602.04879, Figs. 6-7", mark="F", config=Config)
def coefficient(signals: Signals, config: Config) -> Tensor:
    """g, [B, T]. The clip at 1 + eps_high meets A > 0 alone and the one at 1 - eps_low A < 0 alone."""
    advantages = signals.advantages
    relaxed = probability(signals.logp_mu) < config.alpha
    if config.side != "both":
        relaxed &= advantages > 0 if config.side == "high" else advantages < 0
    return clipped_coefficient(signals, config, relaxed)
