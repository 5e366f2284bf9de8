"""A small random batch with every signal that a method may ask for, and ways to spoil it: what `check` runs methods on.

Shapes: B sequences, T response tokens, V vocabulary, K candidates, S = K + 1 support slots.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from methods.signals import Scope, Signals, Support
from methods.support import with_sampled

VOCABULARY, CANDIDATES = 12, 4
# Noise on the logits of a row: on-policy but for rounding, to far off.
SPREADS = (0.02, 0.1, 0.5, 1.0, 2.0, 4.0)
# Log-probs of both policies at the edge of the number range; a sampled token has a finite one under mu.
FAR_PI, FAR_MU = (0.0, -1e-8, -1.0, -101.0, -1e4, -torch.inf), (0.0, -1e-8, -1.0, -101.0, -1e4)


def batch(seed: int = 0, scale: float = 1.0, length: int = 8) -> Signals:
    """Ragged rows of up to `length` tokens in float64, one of them empty; advantages of both signs and 0.

    scale: of the noise that separates the policies.
    """
    random = torch.Generator().manual_seed(seed)
    rows = 2 * len(SPREADS)
    spreads = scale * torch.tensor(SPREADS * 2, dtype=torch.float64).reshape(-1, 1, 1)

    def noise() -> Tensor:
        return torch.randn(rows, length, VOCABULARY, generator=random, dtype=torch.float64)

    mu = 1.5 * noise()
    old = mu + 0.5 * spreads * noise()
    pi = old + spreads * noise()
    sampled = torch.multinomial(mu.softmax(-1).flatten(0, 1), 1, generator=random).reshape(rows, length)
    advantages = torch.randn(rows, 1, generator=random, dtype=torch.float64).expand(rows, length).clone()
    advantages[3] = 0.0
    lengths = torch.randint(length // 2, length + 1, (rows, 1), generator=random)
    lengths[4] = 0
    return of_logits(mu, old, pi, sampled, advantages, torch.arange(length) < lengths, random)


def extremes(dtype: torch.dtype = torch.float32) -> Signals:
    """A row of one token for each pair of log-probs at the edge of the number range and each A in (1, -1, 0, 1e4)."""
    grid = [(pi, mu, a) for pi in FAR_PI for mu in FAR_MU for a in (1.0, -1.0, 0.0, 1e4)]
    logp_pi, logp_mu, advantages = (torch.tensor(c, dtype=torch.float64).unsqueeze(-1) for c in zip(*grid, strict=True))

    def whole(own: Tensor) -> Tensor:
        """[B, 1, V] log-probs: the sampled token's, and the rest in equal parts."""
        rest = (-torch.expm1(own)).log() - torch.tensor(VOCABULARY - 1.0, dtype=torch.float64).log()
        return torch.cat([own.unsqueeze(-1), rest.unsqueeze(-1).expand(*own.shape, VOCABULARY - 1)], -1)

    sampled = torch.zeros(len(grid), 1, dtype=torch.int64)
    mask = torch.ones_like(sampled, dtype=torch.bool)
    mu, pi = whole(logp_mu), whole(logp_pi)
    signals = of_logits(mu, mu, pi, sampled, advantages, mask, torch.Generator().manual_seed(0))
    return cast(replace(signals, logp_pi=logp_pi, logp_mu=logp_mu, logp_old=logp_mu), dtype)


def of_logits(
    mu: Tensor, old: Tensor, pi: Tensor, sampled: Tensor, advantages: Tensor, mask: Tensor, random: torch.Generator
) -> Signals:
    """Every signal of three policies' logits, [B, T, V] each; the call covers a whole mini-batch."""
    logp_mu, logp_old, logp_pi = (logits.log_softmax(-1) for logits in (mu, old, pi))
    ids, valid = with_sampled(logp_mu.topk(CANDIDATES, -1).indices, sampled)
    p = logp_pi.exp()

    def at_sampled(logp: Tensor) -> Tensor:
        return logp.gather(-1, sampled.unsqueeze(-1)).squeeze(-1)

    return Signals(
        logp_pi=at_sampled(logp_pi),
        logp_mu=at_sampled(logp_mu),
        advantages=advantages,
        response_mask=mask,
        logp_old=at_sampled(logp_old),
        support=Support(ids, logp_mu.gather(-1, ids), logp_pi.gather(-1, ids), valid),
        sum_pi_squared=p.square().sum(-1),
        entropy=torch.special.entr(p).sum(-1),
        vocab_size=VOCABULARY,
        full=(logp_mu, logp_pi),
        sampled=sampled,
        uniforms=torch.rand(mask.shape, generator=random, dtype=torch.float64),
        scope=Scope.MINI_BATCH,
    )


def mapped(
    signals: Signals, change: Callable[[Tensor], Tensor], change_slots: Callable[[Tensor], Tensor] | None = None
) -> Signals:
    """`change` of every [B, T] tensor, the mask included, and `change_slots`, or the same, of every [B, T, n] one."""
    slots = change_slots or change
    new: dict[str, Any] = {}
    for field in fields(signals):
        value = getattr(signals, field.name)
        if isinstance(value, Tensor):
            new[field.name] = change(value)
        elif isinstance(value, Support):
            new[field.name] = Support(*(slots(getattr(value, part.name)) for part in fields(value)))
        elif isinstance(value, tuple):
            new[field.name] = tuple(map(slots, value))
    return replace(signals, **new)


def cast(signals: Signals, dtype: torch.dtype) -> Signals:
    """Floating-point tensors in `dtype`."""

    def change(x: Tensor) -> Tensor:
        return x.to(dtype) if x.is_floating_point() else x

    return mapped(signals, change)


def rows(signals: Signals, chosen: slice) -> Signals:
    """Some responses of a batch."""
    return mapped(signals, lambda x: x[chosen])


def spoilt(signals: Signals, garbage: float) -> Signals:
    """What stands outside the response mask overwritten: numbers by `garbage`, ids by a wild one, flags by True."""
    mask = signals.response_mask

    def spoil(x: Tensor, inside: Tensor) -> Tensor:
        if x.dtype == torch.bool:
            return x | ~inside
        return torch.where(inside, x, garbage if x.is_floating_point() else 10**9)

    dirty = mapped(signals, lambda x: spoil(x, mask), lambda x: spoil(x, mask.unsqueeze(-1)))
    return replace(dirty, response_mask=mask)


def padded(signals: Signals, columns: int, empty_rows: int) -> Signals:
    """Columns on the right and rows below, outside the response mask, of whatever an engine leaves there."""
    fillers = {torch.bool: False, torch.int64: 10**9}

    def pad(x: Tensor) -> Tensor:
        filler = fillers.get(x.dtype, torch.nan)
        wide = torch.cat([x, x.new_full((x.shape[0], columns, *x.shape[2:]), filler)], 1)
        return torch.cat([wide, wide.new_full((empty_rows, *wide.shape[1:]), filler)], 0)

    return mapped(signals, pad)
