"""TRM-Max: a response with one token outside the trust region is dropped whole.

    g = min(r, C) · A,  or 0 for all tokens of a response where  max_t D_t > delta

D_t is KL(mu || pi) of the position on top-K, the sampled token and one tail class, or |log r| of the sampled token
(`statistic` log_ratio), for rollouts without top-K.
Source: arXiv 2512.23075 [F]; delta = 0.1 as CPPO's authors rerun it (arXiv 2606.10968) [F]; no cap on r [I].
Shapes: signals [B, T] and support [B, T, K + 1] to g [B, T]. Detached: everything.
Public code: verl has it as rejection statistics (seq_max_k2, seq_max_k3) on pi_old / mu.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from methods import MethodConfig, Needs, Signals, check_cap, check_choice, check_positive, log_ratio, register
from methods.masks import capped_ratio, divergence
from methods.rows import row_max
from methods.thresholds import above

STATISTICS = ("forward_kl", "log_ratio")


@dataclass(frozen=True)
class Config(MethodConfig):
    delta: float = 0.1
    """A response is kept while its largest D_t is not above this."""
    statistic: str = "forward_kl"
    """What D_t is: forward_kl on the support, or log_ratio of the sampled token."""
    ratio_cap: float | None = None
    """C of min(r, C), or None for no cap."""

    def __post_init__(self) -> None:
        check_positive("delta", self.delta)
        check_choice("statistic", self.statistic, STATISTICS)
        check_cap("ratio_cap", self.ratio_cap)


def needs(config: Config) -> Needs:
    """Top-K for the divergence, nothing for the sampled statistic."""
    return Needs.TOP_K if config.statistic == "forward_kl" else Needs.SAMPLED


@register("trm_max", title="TRM-Max", source="arXiv 2512.23075", mark="F", config=Config, needs=needs)
def coefficient(signals: Signals, config: Config) -> Tensor:
    """g, [B, T]."""
    if config.statistic == "log_ratio":
        distance = log_ratio(signals.logp_pi, signals.logp_mu).abs()
    else:
        distance = divergence(signals, config.statistic)
    dropped = above(row_max(distance, signals.response_mask), config.delta)
    return torch.where(dropped, 0.0, capped_ratio(signals, config.ratio_cap) * signals.advantages)
