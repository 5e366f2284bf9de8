"""PPO's clipped surrogate as a coefficient: what PPO, GRPO, clip-higher and their kin differ in is defaults and anchor.

Shapes: B sequences, T response tokens. Source: PPO (arXiv 1707.06347) Eq. 7 [F]; the dual clip: arXiv 1912.09729 [F].
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from methods.config import MethodConfig, check_cap, check_fraction, check_positive
from methods.masks import capped_ratio
from methods.signals import Signals, log_ratio
from methods.thresholds import above, below


@dataclass(frozen=True)
class BandConfig(MethodConfig):
    """PPO's band of a ratio."""

    eps_low: float = 0.2
    """Width of the band below 1: it begins at 1 - eps_low."""
    eps_high: float = 0.2
    """Width of the band above 1: it ends at 1 + eps_high."""

    def __post_init__(self) -> None:
        check_fraction("eps_low", self.eps_low)
        check_positive("eps_high", self.eps_high)


@dataclass(frozen=True)
class ClipConfig(BandConfig):
    """PPO's clip."""

    dual_clip: float | None = None
    """c of max(., c A) where A < 0, or None for no second clip."""
    ratio_cap: float | None = None
    """C of min(r, C), or None for no cap."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_cap("dual_clip", self.dual_clip)
        check_cap("ratio_cap", self.ratio_cap)


@dataclass(frozen=True)
class ClipHigherConfig(ClipConfig):
    """PPO's clip with DAPO's wider upper side."""

    eps_high: float = 0.28
    ratio_cap: float | None = 5.0


def beyond_band(advantages: Tensor, ratio: Tensor, low: Tensor | float, high: Tensor | float) -> Tensor:
    """True where min(r A, clip(r, low, high) A) is flat in r, bool; at the ends of the band it is not."""
    return (advantages > 0) & above(ratio, high) | (advantages < 0) & below(ratio, low)


def beyond_dual_clip(advantages: Tensor, ratio: Tensor, dual_clip: float | None) -> Tensor:
    """True where max(., c A) is flat in r for A < 0, bool; nowhere without a c."""
    return (advantages < 0) & above(ratio, torch.inf if dual_clip is None else dual_clip)


def clipped_coefficient(signals: Signals, config: ClipConfig, relaxed: Tensor | None = None) -> Tensor:
    """g = min(r, C) A where the surrogate is not flat, else 0; [B, T], ratio against mu.

    relaxed: [B, T] bool or None, tokens that the band does not hold.
    """
    ratio, advantages = signals.ratio(), signals.advantages
    flat = beyond_band(advantages, ratio, 1 - config.eps_low, 1 + config.eps_high)
    if relaxed is not None:
        flat &= ~relaxed
    flat |= beyond_dual_clip(advantages, ratio, config.dual_clip)
    return torch.where(flat, 0.0, capped_ratio(signals, config.ratio_cap) * advantages)


def anchored_coefficient(signals: Signals, config: BandConfig, weight: Tensor) -> Tensor:
    """g = weight A where PPO's band around the recomputed anchor pi_old is not left, else 0; weight, g: [B, T]."""
    ratio = log_ratio(signals.logp_pi, anchor(signals)).exp()
    flat = beyond_band(signals.advantages, ratio, 1 - config.eps_low, 1 + config.eps_high)
    return torch.where(flat, 0.0, weight * signals.advantages)


def anchor(signals: Signals) -> Tensor:
    """log pi_old [B, T] of the weights before the rollout's first update, or a ValueError that names the field."""
    if signals.logp_old is None:
        raise ValueError(
            "signals.logp_old is missing: this method compares with the recomputed anchor, the log-probs of the "
            "weights before this rollout's first update"
        )
    return signals.logp_old
