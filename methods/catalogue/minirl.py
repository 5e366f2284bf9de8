"""MiniRL: the clip looks at pi / pi_old of a recomputed anchor, the weight at pi / mu of the rollout.

    g = r · A,  or 0 where  A > 0 and r' > 1 + eps_high,  or  A < 0 and r' < 1 - eps_low
    r = pi / mu,  r' = pi / pi_old

pi_old are the trainer's log-probs of the weights before the rollout's first update: the band sees staleness alone,
the weight staleness and the engine's mismatch.
Source: arXiv 2512.01374, the objective with its mask M_t [F]; widths 0.2 and 0.28 and C = inf in the DPPO paper's
stability study (arXiv 2602.04879) [F], 0.2 and 0.27 in its scaling runs [F].
Shapes: signals [B, T] to g [B, T]; needs logp_old [B, T]. Detached: both ratios.
Public code: Stable-RL's `ppo_recompute`.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from methods import Needs, Signals, check_cap, register
from methods.clipping import BandConfig, anchored_coefficient
from methods.masks import capped_ratio


@dataclass(frozen=True)
class Config(BandConfig):
    eps_high: float = 0.28
    ratio_cap: float | None = None
    """C of min(pi / mu, C), or None for no cap."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_cap("ratio_cap", self.ratio_cap)


@register(
    "minirl",
    title="MiniRL",
    source="arXiv 2512.01374; 2602.04879, Eq. 23",
    mark="F",
    config=Config,
    needs=Needs.RECOMPUTED_ANCHOR,
)
def coefficient(signals: Signals, config: Config) -> Tensor:
    """g, [B, T]; at the edge of the band a token keeps its gradient."""
    return anchored_coefficient(signals, config, capped_ratio(signals, config.ratio_cap))
