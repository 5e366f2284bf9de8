"""Minimal mask of the DPPO paper's ablation: only tokens of bad answers that have lost most of their mass are dropped.

    g = min(r, C) · A,  or 0 where  A < 0 and mu - pi >= threshold

Source: DPPO paper (arXiv 2602.04879) Fig. 5: threshold 0.5 is enough for stability, 0.8 is not [F]; C = inf as in its
stability study [F].
Shapes: signals [B, T] to g [B, T]. Detached: everything.
Public code: Stable-RL's ablation losses. A token exactly at the threshold is dropped, unlike in a trust region, where
equality keeps.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from methods import MethodConfig, Signals, check_cap, check_fraction, probability, register
from methods.masks import capped_ratio
from methods.thresholds import below


@dataclass(frozen=True)
class Config(MethodConfig):
    threshold: float = 0.5
    """A token is dropped where mu - pi, its loss of probability, is larger than this."""
    ratio_cap: float | None = None
    """C of min(r, C), or None for no cap."""

    def __post_init__(self) -> None:
        check_fraction("threshold", self.threshold)
        check_cap("ratio_cap", self.ratio_cap)


@register("dppo_negative", title="Minimal negative mask", source="arXiv 2602.04879, Fig. 5", mark="F", config=Config)
def coefficient(signals: Signals, config: Config) -> Tensor:
    """g, [B, T]."""
    lost = probability(signals.logp_mu) - probability(signals.logp_pi)
    dropped = (signals.advantages < 0) & ~below(lost, config.threshold)
    return torch.where(dropped, 0.0, capped_ratio(signals, config.ratio_cap) * signals.advantages)
