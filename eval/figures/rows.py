"""Synthetic positions for the figures that need no training: rollout policies with Zipf tails, drifted current ones.

Shapes: N rows, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

# What the rows are, in one sentence for the captions; the numbers are our choice [N].
STATED = (
    "{rows:,} synthetic rows [N], seed {seed}: {vocab:,} tokens, mu proportional to rank^-1.5 times exp of a standard "
    "normal, logits of pi those of mu plus normal noise of 0.1 to 1 (one width a row), k drawn from mu"
)


@dataclass(frozen=True)
class Rows:
    """Probabilities mu and pi [N, V], float64, and the sampled ids [N]."""

    mu: Tensor
    pi: Tensor
    sampled: Tensor

    def where(self, chosen: Tensor) -> Rows:
        """The rows that `chosen` [N] bool selects."""
        return Rows(self.mu[chosen], self.pi[chosen], self.sampled[chosen])


def synthetic_rows(rows: int, vocab: int, seed: int) -> Rows:
    """The rows that STATED describes."""
    random = np.random.default_rng(seed)
    logits = -1.5 * np.log(np.arange(1, vocab + 1)) + random.normal(size=(rows, vocab))
    drift = random.uniform(0.1, 1.0, size=(rows, 1))
    mu = torch.from_numpy(logits).softmax(-1)
    pi = torch.from_numpy(logits + drift * random.normal(size=(rows, vocab))).softmax(-1)
    # The inverse distribution function at one uniform number a row; the last id catches a sum just below one.
    below = (mu.cumsum(-1) < torch.from_numpy(random.uniform(size=(rows, 1)))).sum(-1)
    return Rows(mu, pi, below.clamp(max=vocab - 1))


def step(pi: Tensor, sampled: Tensor, size: Tensor | float) -> Tensor:
    """pi after its logits moved by size · (e_k - pi), [N, V]; size: a number or [N]."""
    moved = -pi.scatter_add(-1, sampled.unsqueeze(-1), -torch.ones_like(pi[..., :1]))
    sizes = torch.as_tensor(size, dtype=pi.dtype).expand(pi.shape[:-1]).unsqueeze(-1)
    return (pi.log() + sizes * moved).softmax(-1)


def describe(rows: int, vocab: int, seed: int) -> str:
    """STATED with its numbers."""
    return STATED.format(rows=rows, vocab=vocab, seed=seed)
