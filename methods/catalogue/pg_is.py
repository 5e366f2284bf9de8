"""Policy gradient with importance sampling (PG-IS): no trust region, the control.

    g = r · A,  r = pi(y)/mu(y)

Source: DPPO paper (arXiv 2602.04879) section 3.4, table of methods: M = 1, C = inf [F].
Shapes: signals [B, T] to g [B, T]. Detached: r. Public code: Stable-RL calls it `pg_no_mask`; with a small cap it is
PG-TIS, which is CISPO without a lower bound.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from methods import MethodConfig, Signals, check_cap, register
from methods.masks import capped_ratio


@dataclass(frozen=True)
class Config(MethodConfig):
    ratio_cap: float | None = None
    """C of min(r, C), or None for no cap."""

    def __post_init__(self) -> None:
        check_cap("ratio_cap", self.ratio_cap)


@register("pg_is", title="PG-IS (no trust region)", source="arXiv 2602.04879, 3.4", mark="F", config=Config)
def coefficient(signals: Signals, config: Config) -> Tensor:
    """g = min(r, C) A, [B, T]."""
    return capped_ratio(signals, config.ratio_cap) * signals.advantages
