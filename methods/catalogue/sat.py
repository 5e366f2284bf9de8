"""SAT: PPO's clip whose outward end shrinks for the stalest tokens of the mini-batch.

    g = r · A,  or 0 where  A > 0 and r > 1 + h eps_high,  or  A < 0 and r < 1 - h eps_low
    h = 1 for u <= q,  else 1 / (1 + ((u - q) / q)^n);   u = |log r|,  q: its 90th percentile over the mini-batch

r > 1 meets the upper end only and r < 1 the lower one, so the end that shrinks is the outward one.
Source: arXiv 2607.18722: percentile 0.90, one shrinking end, a Hill kernel of |log r| [S]. The kernel's exact form and
n = 2, the widths 0.2 and 0.28, and the token ratio (the paper also shrinks GSPO's band) are ours [I].
Shapes: signals [B, T] to g [B, T]. Detached: r, q, h. q is over all valid tokens of the mini-batch, so a call with
less than a mini-batch (signals.scope) is refused: the split into micro-batches would choose the tokens.
Public code: none seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from methods import Needs, Scope, Signals, check_cap, check_fraction, check_positive, log_ratio, register
from methods.clipping import BandConfig, beyond_band
from methods.masks import capped_ratio
from methods.rows import row_quantile

TINY = torch.finfo(torch.float32).tiny


@dataclass(frozen=True)
class Config(BandConfig):
    eps_high: float = 0.28
    quantile: float = 0.9
    """Quantile of |log r| beyond which a token counts as stale."""
    exponent: float = 2.0
    """n of the kernel: how fast the band shrinks beyond the quantile."""
    ratio_cap: float | None = None
    """C of min(r, C), or None for no cap."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fraction("quantile", self.quantile)
        check_positive("exponent", self.exponent)
        check_cap("ratio_cap", self.ratio_cap)


@register("sat", title="SAT", source="arXiv 2607.18722", mark="S", config=Config, needs=Needs.MINI_BATCH)
def coefficient(signals: Signals, config: Config) -> Tensor:
    """g, [B, T]. Raises ValueError where the signals cover less than a mini-batch."""
    if signals.scope is not Scope.MINI_BATCH:
        raise ValueError(
            f"signals.scope = {signals.scope.value}: sat ranks tokens over the optimiser step; allowed is mini-batch, "
            "that is one micro-batch per mini-batch"
        )
    staleness = log_ratio(signals.logp_pi, signals.logp_mu).abs()
    limit = row_quantile(staleness.reshape(1, -1), signals.response_mask.reshape(1, -1), config.quantile)
    # Most tokens may be exactly on-policy (q = 0): then the kernel is 1 for them and 0 for the rest.
    excess = (staleness - limit).clamp(min=0.0) / limit.clamp(min=TINY)
    kernel = 1.0 / (1.0 + excess**config.exponent)
    ratio = signals.ratio()
    low, high = 1.0 - kernel * config.eps_low, 1.0 + kernel * config.eps_high
    flat = beyond_band(signals.advantages, ratio, low, high)
    return torch.where(flat, 0.0, capped_ratio(signals, config.ratio_cap) * signals.advantages)
