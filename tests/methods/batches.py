"""Batches for tests of the whole catalogue: every signal a method may ask for, ragged rows, and ways to spoil them.

Shapes: B sequences, T response tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from eval.method_checks.synthetic import mapped
from methods import registry
from methods.signals import Scope, Signals, sanitise
from tests.methods import reference
from tests.methods.helpers import Rows, random_rows, tensor

# Noise on the logits of each row: nearly on-policy to far off.
DRIFTS = (0.02, 0.05, 0.3, 0.7, 1.5, 3.0)


@dataclass(frozen=True)
class Batch:
    """Logits of both policies with the anchor between them, and a ragged response mask with an empty row."""

    rows: Rows
    logits_old: Tensor
    mask: Tensor

    @property
    def signals(self) -> Signals:
        """Every field present; the tensors cover a whole mini-batch."""
        logp_old = self.logits_old.log_softmax(-1).gather(-1, self.rows.sampled.unsqueeze(-1)).squeeze(-1)
        full = (self.rows.logits_mu.log_softmax(-1), self.rows.logits_pi.log_softmax(-1))
        logp_pi = full[1]
        return self.rows.signals(
            response_mask=self.mask,
            logp_old=logp_old,
            entropy=-(logp_pi.exp() * logp_pi).sum(-1),
            full=full,
            sampled=self.rows.sampled,
            uniforms=torch.rand(self.mask.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64),
            scope=Scope.MINI_BATCH,
        )


def random_batch(seed: int, *, per_response: bool = False, length: int = 16) -> Batch:
    """12 rows of up to `length` tokens; the advantage is one number per response, or one per token with zeros."""
    rows = random_rows(seed, batch=2 * len(DRIFTS), length=length, drift=0.0)
    random = torch.Generator().manual_seed(1000 + seed)

    def noise() -> Tensor:
        return torch.randn(rows.logits_mu.shape, generator=random, dtype=torch.float64)

    drifts = torch.tensor(DRIFTS * 2, dtype=torch.float64).reshape(-1, 1, 1)
    advantages = rows.advantages
    if per_response:
        # Both signs at every drift, and one response without advantage.
        one = torch.tensor([1.0] * len(DRIFTS) + [-1.0] * len(DRIFTS), dtype=torch.float64).unsqueeze(-1)
        advantages = (one * (0.5 + torch.rand(one.shape, generator=random, dtype=torch.float64))).expand_as(advantages)
        advantages = torch.where(torch.arange(len(one)).unsqueeze(-1) == 3, 0.0, advantages)
    old = rows.logits_mu + 0.5 * drifts * noise()
    lengths = torch.randint(length // 2, length + 1, (len(DRIFTS) * 2, 1), generator=random)
    lengths[4] = 0
    return Batch(
        rows=replace(rows, logits_pi=old + drifts * noise(), advantages=advantages),
        logits_old=old,
        mask=torch.arange(length) < lengths,
    )


def row(*tokens: tuple[float, ...]) -> Signals:
    """One response; a token is (pi, mu, A) or (pi, mu, A, pi_old)."""
    columns = [tensor([[token[i] if i < len(token) else token[0] for token in tokens]]) for i in range(4)]
    pi, mu, advantages, old = columns
    mask = torch.ones_like(pi, dtype=torch.bool)
    return Signals(pi.log(), mu.log(), advantages, mask, logp_old=old.log(), scope=Scope.MINI_BATCH)


def coefficient(method: str, signals: Signals, options: dict[str, Any] | None = None) -> Tensor:
    """g of a catalogue method on unsanitised signals, [B, T]."""
    found = registry.get(method)
    return found.coefficient(sanitise(signals), found.configure(options))


def spoilt(signals: Signals, garbage: float, garbage_id: int) -> Signals:
    """Everything outside the response mask overwritten: numbers by `garbage`, ids by `garbage_id`, flags by True."""

    def spoil(value: Tensor, mask: Tensor) -> Tensor:
        if value.dtype == torch.bool:
            return value | ~mask
        return torch.where(mask, value, garbage if value.is_floating_point() else garbage_id)

    mask = signals.response_mask
    dirty = mapped(signals, lambda x: spoil(x, mask), lambda x: spoil(x, mask.unsqueeze(-1)))
    return replace(dirty, response_mask=mask)


def selected(signals: Signals, rows: Any) -> Signals:
    """Some sequences of a batch, in that order."""
    return mapped(signals, lambda x: x[rows])


def cast(signals: Signals, dtype: torch.dtype) -> Signals:
    """Floating-point tensors in `dtype`."""
    return mapped(signals, lambda x: x.to(dtype) if x.is_floating_point() else x)


@dataclass(frozen=True)
class Data:
    """A batch as the objectives see it, all [B, T]."""

    batch: Batch
    mu: Tensor
    pi: Tensor
    old: Tensor
    A: Tensor
    mask: Tensor

    @classmethod
    def of(cls, batch: Batch) -> Data:
        s = batch.signals
        return cls(batch, s.logp_mu.exp(), s.logp_pi.exp(), s.logp_old.exp(), s.advantages, s.response_mask)

    @property
    def r(self) -> Tensor:
        return self.pi / self.mu

    def lengths(self) -> Tensor:
        return self.mask.sum(-1).clamp(min=1).double()

    def total(self, values: Tensor) -> Tensor:
        """Sum over valid tokens."""
        return values[self.mask].sum()

    def per_token(self, formula: Callable[[reference.Token], float]) -> Tensor:
        return torch.tensor([[formula(t) for t in row] for row in self.batch.rows.tokens()], dtype=torch.float64)
