"""Corrections of the gap between trainer and rollout engine: PPO around pi_old, weighted with rho = pi_old / mu.

    g = w(rho) · r' · A · M,   r' = pi / pi_old,   M: PPO's clip mask on r'

rho is the mismatch of a token, of the whole response (product) or of its geometric mean per token; the last two are
one number a row. w truncates rho (TIS) or drops what lies outside its bounds (MIS, IcePop).
Shapes: B sequences, T response tokens. Source: each method's file; PPO's widths, 0.2 and 0.2, are GRPO's [I].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from methods.clipping import BandConfig, anchor, anchored_coefficient
from methods.config import MethodConfigError, check_choice, check_non_negative, check_positive
from methods.rows import geometric_ratio, sequence_ratio
from methods.signals import Signals, log_ratio
from methods.thresholds import above, below

Level = Literal["token", "sequence", "geometric"]
LEVELS: tuple[Level, ...] = get_args(Level)


@dataclass(frozen=True)
class LevelConfig(BandConfig):
    """PPO's band around pi_old, and the mismatch rho."""

    level: Level = "token"
    """What rho is the ratio of: a token, the response, or the geometric mean over its tokens."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("level", self.level, LEVELS)


def check_bounds(lower: float | None, upper: float) -> None:
    """0 <= lower < upper, lower None for no lower bound."""
    check_positive("upper", upper)
    if lower is None:
        return
    check_non_negative("lower", lower)
    if lower >= upper:
        raise MethodConfigError(f"lower = {lower!r}: allowed is lower < upper = {upper!r}")


def mismatch(signals: Signals, level: Level) -> Tensor:
    """rho = pi_old / mu at the level, [B, T] (one number a row but for the token level)."""
    old, mask = anchor(signals), signals.response_mask
    if level == "token":
        return log_ratio(old, signals.logp_mu).exp()
    whole = sequence_ratio if level == "sequence" else geometric_ratio
    return whole(old, signals.logp_mu, mask).expand_as(signals.logp_mu)


def truncated(rho: Tensor, upper: float) -> Tensor:
    """min(rho, C)."""
    return rho.clamp(max=upper)


def filtered(rho: Tensor, lower: float | None, upper: float) -> Tensor:
    """rho within [lower, upper], else 0; the bounds themselves are kept."""
    outside = above(rho, upper) if lower is None else above(rho, upper) | below(rho, lower)
    return torch.where(outside, 0.0, rho)


def corrected_coefficient(signals: Signals, config: BandConfig, weight: Tensor) -> Tensor:
    """g = weight · r' · A · M, [B, T]."""
    return anchored_coefficient(signals, config, weight * log_ratio(signals.logp_pi, anchor(signals)).exp())
