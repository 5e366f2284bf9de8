"""TRM-Mean: a response whose sampled divergence per token leaves the trust region is dropped whole.

    g = min(r, C) · A,  or 0 for all tokens of a response where  mean_t (r_t - 1 - log r_t) > delta

r - 1 - log r is the k3 estimate of KL(mu || pi) from a token sampled by mu, never negative.
Source: arXiv 2512.23075 [F]; delta = 0.002 as CPPO's authors rerun it (TRM-Avg in arXiv 2606.10968) [F]; no cap on
r [I].
Shapes: signals [B, T] to g [B, T]. Detached: everything.
Public code: verl has it as the rejection statistic seq_mean_k3 on pi_old / mu.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from methods import MethodConfig, Signals, check_cap, check_positive, register
from methods.masks import capped_ratio
from methods.penalties import k3
from methods.rows import row_mean
from methods.thresholds import above


@dataclass(frozen=True)
class Config(MethodConfig):
    delta: float = 0.002
    """A response is kept while its mean k3 is not above this."""
    ratio_cap: float | None = None
    """C of min(r, C), or None for no cap."""

    def __post_init__(self) -> None:
        check_positive("delta", self.delta)
        check_cap("ratio_cap", self.ratio_cap)


@register("trm_mean", title="TRM-Mean", source="arXiv 2512.23075", mark="F", config=Config)
def coefficient(signals: Signals, config: Config) -> Tensor:
    """g, [B, T]."""
    distance = row_mean(k3(signals.logp_mu, signals.logp_pi), signals.response_mask)
    return torch.where(above(distance, config.delta), 0.0, capped_ratio(signals, config.ratio_cap) * signals.advantages)
