"""GSPO: one importance ratio a response, the geometric mean of its tokens' ratios, clipped as a whole.

    s = (prod_t pi_t / mu_t)^(1/|y|)
    g = s · A,  or 0 where  A > 0 and s > 1 + eps_high,  or  A < 0 and s < 1 - eps_low;  the same s for every token

The gradient of the paper's objective, the mean over responses of min(s A, clip(s) A), with respect to log pi of one
token is s A / |y|. The 1/|y| is not in g: aggregation seq-mean-token-mean supplies it, and only with that mode is the
update GSPO's. Under a token-sum mode a response weighs |y| times as much. Where A differs within a response each
token's own A decides, which is the paper's GSPO-token.
Source: arXiv 2507.18071 Eqs. 5-7 (sequence) and 13-14 (token), widths 3e-4 and 4e-4 [S].
Shapes: signals [B, T] to g [B, T]. Detached: s, which gives the same gradient as differentiating the objective.
Public code: verl takes the widths from PPO's keys (0.2 unless set) and token-mean unless told otherwise, and limits
log s at 10 (here 20).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from methods import Signals, register
from methods.clipping import BandConfig, beyond_band
from methods.rows import geometric_ratio


@dataclass(frozen=True)
class Config(BandConfig):
    eps_low: float = 3e-4
    """Width of the sequence ratio's band below 1."""
    eps_high: float = 4e-4
    """Width of the sequence ratio's band above 1."""


@register("gspo", title="GSPO", source="arXiv 2507.18071, Eqs. 5-7", mark="S", config=Config)
def coefficient(signals: Signals, config: Config) -> Tensor:
    """g, [B, T]; for aggregation seq-mean-token-mean."""
    ratio = geometric_ratio(signals.logp_pi, signals.logp_mu, signals.response_mask)
    flat = beyond_band(signals.advantages, ratio, 1 - config.eps_low, 1 + config.eps_high)
    return torch.where(flat, 0.0, ratio * signals.advantages)
