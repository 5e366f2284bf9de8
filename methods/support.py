"""The retained support of a token: a set of ids, its masses under both policies, and one tail class.

Shapes: B sequences, T response tokens, K candidates, S = K + 1 slots. A rollout engine returns the top-K log-probs
of mu; the sampled token joins them (DPPO paper, above Eq. 15 [F]), so a row retains K or K + 1 ids. The DPPO paper's
code (Stable-RL) lets it replace candidate K instead, so that a row never retains more than K [F].
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from methods.signals import Signals, Support, probability

FILLER_ID = -1

SupportRule = Literal["added", "replaced"]
SUPPORT_RULES: tuple[SupportRule, ...] = ("added", "replaced")


@dataclass(frozen=True)
class Masses:
    """Probabilities on the support and one tail class.

    mu, pi: [..., S], zero in invalid slots. mu_tail, pi_tail: [...], clamped at zero.
    unseen: [...], number of real ids outside the support (at least one, so that a division by it is defined),
    or None when the vocabulary size is unknown.
    """

    mu: Tensor
    pi: Tensor
    mu_tail: Tensor
    pi_tail: Tensor
    unseen: Tensor | None


def with_sampled(ids: Tensor, sampled: Tensor, logp_mu: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Unite candidates with the sampled token.

    ids: [..., K] int, candidates of mu (an id < 0 marks a filler slot); sampled: [...] int. logp_mu: [..., K], the
    candidates' log-probs where the engine also marks fillers by -inf; such a slot loses its id, so that the same
    id in another slot still counts.
    Returns (ids [..., K + 1], valid [..., K + 1]): fillers and repeated ids are invalid, and the last slot holds the
    sampled token, valid only where it is not among the candidates already.
    """
    if logp_mu is not None:
        ids = torch.where(logp_mu == -torch.inf, FILLER_ID, ids)
    joined = torch.cat([ids, sampled.unsqueeze(-1)], dim=-1)
    return joined, distinct(joined)


def distinct(ids: Tensor) -> Tensor:
    """[..., S] bool: True at the first occurrence of each real id (an id < 0 is a filler)."""
    # Sorted, not compared pairwise: a row may hold a whole vocabulary.
    ordered, places = ids.sort(dim=-1, stable=True)
    first = torch.ones_like(ordered, dtype=torch.bool)
    first[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
    return (ids >= 0) & torch.empty_like(first).scatter_(-1, places, first)


def with_support_rule(signals: Signals, rule: SupportRule) -> Signals:
    """The same signals seen through a support of that rule; signals without a support stay as they are.

    added: as carried. replaced: where the sampled token came from outside the candidates, the least likely of them
    under mu is left to the tail. Slots are re-selected, so nothing else has to be carried from rollout to loss.
    Raises ValueError for an unknown rule.
    """
    if rule not in SUPPORT_RULES:
        raise ValueError(f"support rule = {rule!r}: allowed are {', '.join(SUPPORT_RULES)}")
    if rule == "added" or signals.support is None:
        return signals
    support = signals.support
    candidates = support.valid[..., :-1]
    logp = torch.where(candidates, support.logp_mu[..., :-1], torch.inf)
    last = torch.zeros_like(candidates)
    if candidates.shape[-1]:
        # Of equally likely candidates the one that stands last, as in a row sorted by falling probability.
        place = candidates.shape[-1] - 1 - logp.flip(-1).argmin(-1, keepdim=True)
        last = last.scatter(-1, place, support.valid[..., -1:])
    valid = torch.cat([candidates & ~last, support.valid[..., -1:]], -1)
    return replace(signals, support=replace(support, valid=valid))


def masses(support: Support, vocab_size: int | None = None) -> Masses:
    """Probabilities of both policies on the support, and their tails 1 - sum (arXiv 2607.10848, 3.3 [S])."""
    zero = torch.zeros((), dtype=torch.float32, device=support.logp_mu.device)
    mu = torch.where(support.valid, probability(support.logp_mu), zero)
    pi = torch.where(support.valid, probability(support.logp_pi), zero)
    unseen = None
    if vocab_size is not None:
        unseen = (vocab_size - support.valid.sum(-1)).clamp(min=1).to(mu.dtype)
    return Masses(
        mu=mu,
        pi=pi,
        # Rounding may put the retained mass above one; a negative tail would be a negative probability.
        mu_tail=(1.0 - mu.sum(-1)).clamp(min=0.0),
        pi_tail=(1.0 - pi.sum(-1)).clamp(min=0.0),
        unseen=unseen,
    )
