"""GMPO: the geometric mean of token ratios, each clipped in log space before it enters the mean.

    s = exp( (1/|y|) sum_t l_t ),  l_t = log r_t clipped at eps_high if A > 0, at -eps_low if A < 0
    g = s · A,  or 0 for a token that is clipped

The gradient of the paper's objective, the mean over responses of s A, with respect to log pi of an unclipped token is
s A / |y|. The 1/|y| is not in g: aggregation seq-mean-token-mean supplies it. A clipped token gets no gradient, but
its clipped ratio stays in s.
Source: arXiv 2507.20673 section 3, log widths 0.4 and 0.4 [S].
Shapes: signals [B, T] to g [B, T]. Detached: s, which gives the same gradient as differentiating the objective.
Public code: verl's `geo_mean` uses PPO's keys as log widths, averages A over the response (one value in practice) and
takes the mean over whatever it is given: an empty response counts, and so the gradient grows with the number of
micro-batches.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from methods import Signals, register
from methods.clipping import BandConfig, beyond_band
from methods.rows import limited_exp, raw_log_ratio, row_mean


@dataclass(frozen=True)
class Config(BandConfig):
    eps_low: float = 0.4
    """The band of the token's log-ratio begins at -eps_low."""
    eps_high: float = 0.4
    """The band of the token's log-ratio ends at eps_high."""


@register("geo_mean", title="GMPO (geometric mean)", source="arXiv 2507.20673, section 3", mark="S", config=Config)
def coefficient(signals: Signals, config: Config) -> Tensor:
    """g, [B, T]; for aggregation seq-mean-token-mean."""
    logs, advantages = raw_log_ratio(signals.logp_pi, signals.logp_mu), signals.advantages
    flat = beyond_band(advantages, logs, -config.eps_low, config.eps_high)
    clipped = torch.where(flat, logs.clamp(-config.eps_low, config.eps_high), logs)
    return torch.where(flat, 0.0, limited_exp(row_mean(clipped, signals.response_mask)) * advantages)
