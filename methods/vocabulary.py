"""Statistics of a softmax policy over the vocabulary, computed in row chunks so that no second [N, V] tensor lives on.

Shapes: N tokens, V logits, S support slots. Everything is float32 and without gradient.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

# Rows times columns of one chunk: 2^22 float32 numbers are 16 MB, small against any model's logits.
CHUNK_ELEMENTS = 1 << 22


@dataclass(frozen=True)
class PolicyStatistics:
    """logp: [N, S] at the given ids (-inf in filler slots); sum_pi_squared, entropy (nats): [N]."""

    logp: Tensor
    sum_pi_squared: Tensor
    entropy: Tensor


@torch.no_grad()
def policy_statistics(logits: Tensor, ids: Tensor) -> PolicyStatistics:
    """Log-probs at `ids`, collision mass and entropy of softmax(logits).

    logits: [N, V] at the sampling temperature; ids: [N, S] int64, an id < 0 is a filler.
    Raises ValueError for an id outside the vocabulary.
    """
    if ids.numel() and int(ids.max()) >= logits.shape[-1]:
        raise ValueError(f"support id {int(ids.max())} is outside the vocabulary of {logits.shape[-1]} logits")
    rows = max(1, CHUNK_ELEMENTS // logits.shape[-1])
    parts = [_statistics(x.float(), i) for x, i in zip(logits.split(rows), ids.split(rows), strict=True)]
    return PolicyStatistics(*(torch.cat(columns) for columns in zip(*parts, strict=True)))


def _statistics(logits: Tensor, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    log_normaliser = torch.logsumexp(logits, dim=-1, keepdim=True)
    logp = logits - log_normaliser
    at_ids = logp.gather(-1, ids.clamp(min=0)).masked_fill(ids < 0, -torch.inf)
    probabilities = logp.exp()
    # An impossible token (logit -inf) contributes 0 * -inf: its log-prob is replaced before the product.
    entropy = -(probabilities * logp.masked_fill(probabilities == 0, 0.0)).sum(-1)
    return at_ids, probabilities.square().sum(-1), entropy
