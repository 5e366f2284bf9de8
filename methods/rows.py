"""Statistics of a response: sums, means, maxima and quantiles over the valid tokens of a row, and ratios of whole rows.

Shapes: B sequences, T response tokens. Every statistic maps values and mask, both [B, T], to [B, 1], so that it
broadcasts over its row; an empty row gives 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

from methods.signals import LOG_RATIO_LIMIT

# Stands for the log-ratio of an impossible token: beyond any sum of real ones, and 1e8 of them still fit in float32.
IMPOSSIBLE = 1e30


def row_sum(values: Tensor, mask: Tensor) -> Tensor:
    """Sum over the valid tokens of each row."""
    return torch.where(mask, values, 0.0).sum(-1, keepdim=True)


def prefix_sum(values: Tensor, mask: Tensor) -> Tensor:
    """Sum over the valid tokens before each position, [B, T]; 0 at the first."""
    through = torch.where(mask, values, 0.0).cumsum(-1)
    return torch.cat([torch.zeros_like(through[..., :1]), through[..., :-1]], -1)


def row_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over the valid tokens of each row."""
    return row_sum(values, mask) / mask.sum(-1, keepdim=True).clamp(min=1)


def row_max(values: Tensor, mask: Tensor) -> Tensor:
    """Largest of non-negative values among the valid tokens of each row."""
    if values.shape[-1] == 0:
        return values.new_zeros(*values.shape[:-1], 1)
    return torch.where(mask, values, 0.0).amax(-1, keepdim=True)


def row_quantile(values: Tensor, mask: Tensor, share: float) -> Tensor:
    """Quantile of the valid tokens of each row, linear between order statistics (numpy's and torch's default).

    Not torch.quantile, which knows no mask and refuses more than 2^24 values.
    """
    if values.shape[-1] == 0:
        return values.new_zeros(*values.shape[:-1], 1)
    count = mask.sum(-1, keepdim=True)
    ordered = torch.where(mask, values, torch.inf).sort(-1).values
    place = share * (count - 1).clamp(min=0).double()
    below = place.floor().long()
    above = torch.minimum(below + 1, (count - 1).clamp(min=0))
    low, high = ordered.gather(-1, below), ordered.gather(-1, above)
    return torch.where(count > 0, low + (place - below).to(values.dtype) * (high - low), 0.0)


def raw_log_ratio(logp_a: Tensor, logp_b: Tensor) -> Tensor:
    """log(a/b) of each token without a limit but for impossible tokens, float32 or better.

    For sums over a row, where the limit belongs on the sum. Two impossible tokens agree: 0.
    """
    dtype = torch.promote_types(torch.promote_types(logp_a.dtype, logp_b.dtype), torch.float32)
    impossible = (logp_a == -torch.inf) & (logp_b == -torch.inf)
    return torch.where(impossible, 0.0, logp_a.to(dtype) - logp_b.to(dtype)).clamp(-IMPOSSIBLE, IMPOSSIBLE)


def limited_exp(log_ratio: Tensor) -> Tensor:
    """exp of a log-ratio of at most 20, the limit of a single token's."""
    return log_ratio.clamp(max=LOG_RATIO_LIMIT).exp()


def sequence_ratio(logp_a: Tensor, logp_b: Tensor, mask: Tensor) -> Tensor:
    """prod_t a_t / b_t of each row, [B, 1]: the importance weight of a whole response."""
    return limited_exp(row_sum(raw_log_ratio(logp_a, logp_b), mask))


def geometric_ratio(logp_a: Tensor, logp_b: Tensor, mask: Tensor) -> Tensor:
    """(prod_t a_t / b_t)^(1/|y|) of each row, [B, 1]: GSPO's length-normalised ratio."""
    return limited_exp(row_mean(raw_log_ratio(logp_a, logp_b), mask))
