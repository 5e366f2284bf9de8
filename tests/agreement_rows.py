"""Rows on which both sides of an agreement test are evaluated: as torch signals, and as numbers at 50 digits.

Both sides get the same float64 logits; the exact side computes its own softmax, support and tails.
Shapes: N positions, V vocabulary, K candidates.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from mpmath import fsum, log, mpf
from torch import Tensor

from derivations import formulas, numeric
from methods.signals import Signals, Support
from methods.support import with_sampled


@dataclass(frozen=True)
class Rows:
    """logits of both policies [N, V], sampled ids [N], number of candidates K."""

    logits_mu: Tensor
    logits_pi: Tensor
    sampled: Tensor
    top_k: int

    def first(self, positions: int) -> Rows:
        return Rows(self.logits_mu[:positions], self.logits_pi[:positions], self.sampled[:positions], self.top_k)


def random_rows(seed: int, *, vocab: int, top_k: int, width: float, drift: float, positions: int = 12) -> Rows:
    random = torch.Generator().manual_seed(seed)

    def normal() -> Tensor:
        return torch.randn(positions, vocab, generator=random, dtype=torch.float64)

    logits_mu = width * normal()
    sampled = torch.randint(vocab, (positions,), generator=random)
    return Rows(logits_mu, logits_mu + drift * normal(), sampled, top_k)


def ties() -> Rows:
    """All logits equal under mu, two values under pi; every token is sampled once."""
    values = torch.tensor([0.0, 0.0, 1.0, 1.0, 0.0, 1.0], dtype=torch.float64)
    return Rows(torch.zeros(6, 6, dtype=torch.float64), values.expand(6, 6).clone(), torch.arange(6), 2)


CASES = {
    "typical": random_rows(0, vocab=40, top_k=5, width=2.0, drift=0.5),
    "one candidate": random_rows(1, vocab=17, top_k=1, width=2.0, drift=1.0),
    "near-certain tokens": random_rows(2, vocab=12, top_k=3, width=15.0, drift=5.0),
    "certain to the last digit": random_rows(3, vocab=8, top_k=2, width=60.0, drift=20.0),
    "nearly equal policies": random_rows(4, vocab=30, top_k=4, width=2.0, drift=1e-6),
    "equal policies": random_rows(5, vocab=30, top_k=4, width=2.0, drift=0.0),
    "flat policies": random_rows(6, vocab=64, top_k=8, width=1e-3, drift=1e-3),
    "no tail": random_rows(7, vocab=6, top_k=6, width=2.0, drift=1.0),
    "tail of one or no token": random_rows(8, vocab=6, top_k=5, width=2.0, drift=1.0),
    "two tokens": random_rows(9, vocab=2, top_k=1, width=3.0, drift=2.0),
    "ties": ties(),
}


def signals(rows: Rows, advantage: float = 1.0) -> Signals:
    """Signals of one sequence [1, N] as a trainer builds them, with the full distributions."""
    logp_mu, logp_pi = rows.logits_mu.log_softmax(-1), rows.logits_pi.log_softmax(-1)
    ids, valid = with_sampled(logp_mu.topk(rows.top_k, dim=-1).indices, rows.sampled)
    chosen = rows.sampled.unsqueeze(-1)
    return Signals(
        logp_pi=logp_pi.gather(-1, chosen).squeeze(-1)[None],
        logp_mu=logp_mu.gather(-1, chosen).squeeze(-1)[None],
        advantages=torch.full((1, len(rows.sampled)), advantage, dtype=torch.float64),
        response_mask=torch.ones(1, len(rows.sampled), dtype=torch.bool),
        support=Support(ids[None], logp_mu.gather(-1, ids)[None], logp_pi.gather(-1, ids)[None], valid[None]),
        sum_pi_squared=logp_pi.exp().square().sum(-1)[None],
        vocab_size=logp_mu.shape[-1],
        full=(logp_mu[None], logp_pi[None]),
        sampled=rows.sampled[None],
    )


@dataclass(frozen=True)
class Exact:
    """One position at 50 digits: whole distributions, the candidates and the support as lists of ids."""

    mu: list[mpf]
    pi: list[mpf]
    sampled: int
    candidates: list[int]

    @property
    def support(self) -> list[int]:
        return list(dict.fromkeys([*self.candidates, self.sampled]))

    @property
    def tail(self) -> list[int]:
        return [token for token in range(len(self.mu)) if token not in self.support]

    @property
    def classes(self) -> tuple[list[mpf], list[mpf], mpf, mpf]:
        """mu and pi on the support, then the tail masses."""
        mu, pi = ([policy[token] for token in self.support] for policy in (self.mu, self.pi))
        return mu, pi, *(fsum(policy[token] for token in self.tail) for policy in (self.mu, self.pi))

    @property
    def place(self) -> int:
        return self.support.index(self.sampled)

    @property
    def tail_collision(self) -> mpf:
        return fsum(self.pi[token] ** 2 for token in self.tail)

    def direction(self, rule: str, measure: str = "forward_kl") -> mpf:
        if rule == "full":
            return formulas.direction_full(self.mu, self.pi, self.sampled, backend="mpmath", measure=measure)
        return formulas.direction_topk(
            *self.classes,
            self.place,
            len(self.tail) or 1,
            rule,
            tail_collision=self.tail_collision,
            backend="mpmath",
            measure=measure,
        )

    def divergence(self, measure: str = "forward_kl", full: bool = False) -> mpf:
        if full or not self.tail:
            return formulas.divergence(measure, self.mu, self.pi, backend="mpmath")
        return formulas.divergence_topk(measure, *self.classes, backend="mpmath")

    def size(self, measure: str) -> float:
        """How large the numbers are of which a direction of this measure is a difference."""
        ratios = [pi / mu for mu, pi in zip(self.mu, self.pi, strict=True)]
        if self.tail:
            mu_tail, pi_tail = self.classes[2:]
            ratios.append(pi_tail / mu_tail)
            # A tail is one minus a sum in float64: its last digit counts as often as the tail stands below.
            if measure in ("chi2_pearson", "chi2_neyman", "reverse_kl", "jeffreys"):
                ratios.append(ratios[-1] * (1 + ratios[-1]) / mu_tail / 100)
        spread = max(max(ratios), 1 / min(ratios))
        if measure in ("reverse_kl", "jeffreys", "js"):
            return 1 + abs(float(log(spread)))
        return float(spread) if measure.startswith("chi2") else 1.0


def exact(rows: Rows) -> list[Exact]:
    """Call inside mp.workdps. Candidates are taken from torch's topk, for ties fall as they fall."""
    candidates = rows.logits_mu.log_softmax(-1).topk(rows.top_k, dim=-1).indices.tolist()
    result = []
    for place, sampled in enumerate(rows.sampled.tolist()):
        mu, pi = (
            numeric.softmax([mpf(x) for x in logits[place].tolist()]) for logits in (rows.logits_mu, rows.logits_pi)
        )
        result.append(Exact(mu, pi, sampled, candidates[place]))
    return result
