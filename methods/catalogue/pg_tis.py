"""PG-TIS, truncated importance sampling: CISPO with an upper bound alone, and no mask.

    g = min(r, C) · A,  r = pi(y)/mu(y)

A token beyond C keeps its gradient at a bounded size; nothing is ever dropped.
Source: DPPO paper (arXiv 2602.04879) Eq. 23 and its table of methods, M = 1; C = 5 in its scaling runs and 3 in its
stability study [F]. With C = inf it is PG-IS.
Shapes: signals [B, T] to g [B, T]. Detached: min(r, C).
Public code: Stable-RL's `pg_no_mask`, whose C is 10 by default.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from methods import MethodConfig, Signals, check_cap, register
from methods.masks import capped_ratio


@dataclass(frozen=True)
class Config(MethodConfig):
    ratio_cap: float | None = 5.0
    """C of min(r, C), or None for no cap."""

    def __post_init__(self) -> None:
        check_cap("ratio_cap", self.ratio_cap)


@register("pg_tis", title="PG-TIS", source="arXiv 2602.04879, Eq. 23", mark="F", config=Config)
def coefficient(signals: Signals, config: Config) -> Tensor:
    """g = min(r, C) A, [B, T]."""
    return capped_ratio(signals, config.ratio_cap) * signals.advantages
