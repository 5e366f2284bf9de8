"""MiniRL-TIS: MiniRL with its importance weight truncated at C.

    g = min(r, C) · A,  or 0 where  A > 0 and r' > 1 + eps_high,  or  A < 0 and r' < 1 - eps_low
    r = pi / mu,  r' = pi / pi_old  (see `minirl`)

Source: arXiv 2512.01374 for the mask; C = 3 in the DPPO paper's stability study (arXiv 2602.04879), Eq. 23 and table
of methods [F].
Shapes: signals [B, T] to g [B, T]; needs logp_old [B, T]. Detached: both ratios.
Public code: Stable-RL's `ppo_recompute` with a clip_ratio_c.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from methods import Needs, Signals, register
from methods.catalogue import minirl


@dataclass(frozen=True)
class Config(minirl.Config):
    ratio_cap: float | None = 3.0


@register(
    "minirl_tis",
    title="MiniRL-TIS",
    source="arXiv 2512.01374; 2602.04879, Eq. 23",
    mark="F",
    config=Config,
    needs=Needs.RECOMPUTED_ANCHOR,
)
def coefficient(signals: Signals, config: Config) -> Tensor:
    """g, [B, T]; at the edge of the band a token keeps its gradient."""
    return minirl.coefficient(signals, config)
