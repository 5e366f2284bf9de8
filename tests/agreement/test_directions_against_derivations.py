"""The shipped torch directions and divergences against the formulas that `derivations` proves, at 50 digits.

Both sides get the same float64 logits; the exact side computes its own softmax, support and tails. Covered: forward KL,
full vocabulary and every tail rule. Not covered: other measures, and the float32 and bfloat16 paths (tests/methods).

Shapes: N positions, V vocabulary, K candidates.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from mpmath import fsum, mp, mpf
from torch import Tensor

from derivations import formulas, numeric
from methods.directions import TAIL_RULES, full_direction, predictive_direction
from methods.masks import topk_proximity
from methods.measures import FORWARD_KL
from methods.signals import Signals, Support
from methods.support import united

# Every direction is a sum of products of probabilities, so float64 leaves no more than a few V * 1e-16.
TOLERANCE = 1e-13


@dataclass(frozen=True)
class Rows:
    """logits of both policies [N, V], sampled ids [N], number of candidates K."""

    logits_mu: Tensor
    logits_pi: Tensor
    sampled: Tensor
    top_k: int


def random_rows(seed: int, *, vocab: int, top_k: int, width: float, lag: float, positions: int = 12) -> Rows:
    random = torch.Generator().manual_seed(seed)

    def normal() -> Tensor:
        return torch.randn(positions, vocab, generator=random, dtype=torch.float64)

    logits_mu = width * normal()
    sampled = torch.randint(vocab, (positions,), generator=random)
    return Rows(logits_mu, logits_mu + lag * normal(), sampled, top_k)


def ties() -> Rows:
    """All logits equal under mu, two values under pi; every token is sampled once."""
    values = torch.tensor([0.0, 0.0, 1.0, 1.0, 0.0, 1.0], dtype=torch.float64)
    return Rows(torch.zeros(6, 6, dtype=torch.float64), values.expand(6, 6).clone(), torch.arange(6), 2)


CASES = {
    "typical": random_rows(0, vocab=40, top_k=5, width=2.0, lag=0.5),
    "one candidate": random_rows(1, vocab=17, top_k=1, width=2.0, lag=1.0),
    "near-certain tokens": random_rows(2, vocab=12, top_k=3, width=15.0, lag=5.0),
    "certain to the last digit": random_rows(3, vocab=8, top_k=2, width=60.0, lag=20.0),
    "nearly equal policies": random_rows(4, vocab=30, top_k=4, width=2.0, lag=1e-6),
    "equal policies": random_rows(5, vocab=30, top_k=4, width=2.0, lag=0.0),
    "flat policies": random_rows(6, vocab=64, top_k=8, width=1e-3, lag=1e-3),
    "no tail": random_rows(7, vocab=6, top_k=6, width=2.0, lag=1.0),
    "tail of one or no token": random_rows(8, vocab=6, top_k=5, width=2.0, lag=1.0),
    "two tokens": random_rows(9, vocab=2, top_k=1, width=3.0, lag=2.0),
    "ties": ties(),
}


def signals(rows: Rows) -> Signals:
    """Signals of one sequence [1, N] as a trainer builds them."""
    logp_mu, logp_pi = rows.logits_mu.log_softmax(-1), rows.logits_pi.log_softmax(-1)
    ids, valid = united(logp_mu.topk(rows.top_k, dim=-1).indices, rows.sampled)
    chosen = rows.sampled.unsqueeze(-1)
    row = Signals(
        logp_pi=logp_pi.gather(-1, chosen).squeeze(-1)[None],
        logp_mu=logp_mu.gather(-1, chosen).squeeze(-1)[None],
        advantages=torch.ones(1, len(rows.sampled), dtype=torch.float64),
        response_mask=torch.ones(1, len(rows.sampled), dtype=torch.bool),
        support=Support(ids[None], logp_mu.gather(-1, ids)[None], logp_pi.gather(-1, ids)[None], valid[None]),
        sum_pi_squared=logp_pi.exp().square().sum(-1)[None],
        vocab_size=logp_mu.shape[-1],
    )
    return row


@dataclass(frozen=True)
class Exact:
    """One position at 50 digits: whole distributions, and the support as a list of ids."""

    mu: list[mpf]
    pi: list[mpf]
    sampled: int
    support: list[int]

    @property
    def tail(self) -> list[int]:
        return [token for token in range(len(self.mu)) if token not in self.support]

    def direction(self, rule: str) -> mpf:
        if rule == "full":
            return formulas.direction_full(self.mu, self.pi, self.sampled, backend="mpmath")
        return formulas.direction_topk(
            [self.mu[token] for token in self.support],
            [self.pi[token] for token in self.support],
            fsum(self.mu[token] for token in self.tail),
            fsum(self.pi[token] for token in self.tail),
            self.support.index(self.sampled),
            len(self.tail) or 1,
            rule,
            tail_collision=fsum(self.pi[token] ** 2 for token in self.tail),
            backend="mpmath",
        )

    def divergence(self) -> mpf:
        if not self.tail:
            return formulas.forward_kl(self.mu, self.pi, backend="mpmath")
        return formulas.forward_kl_topk(
            [self.mu[token] for token in self.support],
            [self.pi[token] for token in self.support],
            fsum(self.mu[token] for token in self.tail),
            fsum(self.pi[token] for token in self.tail),
            backend="mpmath",
        )


def exact(rows: Rows) -> list[Exact]:
    """Call inside mp.workdps. Candidates are taken from torch's topk, for ties fall as they fall."""
    candidates = rows.logits_mu.log_softmax(-1).topk(rows.top_k, dim=-1).indices.tolist()
    result = []
    for place, sampled in enumerate(rows.sampled.tolist()):
        mu, pi = (
            numeric.softmax([mpf(x) for x in logits[place].tolist()]) for logits in (rows.logits_mu, rows.logits_pi)
        )
        result.append(Exact(mu, pi, sampled, list(dict.fromkeys([*candidates[place], sampled]))))
    return result


def shipped(rows: Rows, rule: str) -> Tensor:
    """The torch side, [N]."""
    if rule == "full":
        return full_direction(FORWARD_KL, rows.logits_mu.softmax(-1), rows.logits_pi.softmax(-1), rows.sampled)
    return predictive_direction(signals(rows), FORWARD_KL, rule)[0]


def largest_gap(rows: Rows, rule_of_methods: str, rule_of_derivations: str) -> float:
    with mp.workdps(50):
        proved = [position.direction(rule_of_derivations) for position in exact(rows)]
        return max(float(abs(mpf(x) - y)) for x, y in zip(shipped(rows, rule_of_methods).tolist(), proved, strict=True))


@pytest.mark.parametrize("rule", ["full", *TAIL_RULES])
@pytest.mark.parametrize("case", CASES)
def test_direction_is_the_proved_formula(case, rule):
    assert largest_gap(CASES[case], rule, rule) < TOLERANCE


def test_both_rooms_know_the_same_tail_rules():
    assert set(TAIL_RULES) == set(formulas.RULES)


@pytest.mark.parametrize("rule", ["full", *TAIL_RULES])
def test_the_comparison_tells_the_rules_apart(rule):
    """Another formula on either side would be noticed: at a tail of several tokens no two rules coincide."""
    for other in {"full", *TAIL_RULES} - {rule}:
        assert largest_gap(CASES["one candidate"], rule, other) > 1e6 * TOLERANCE


@pytest.mark.parametrize("case", CASES)
def test_top_k_divergence_is_the_one_that_is_differentiated(case):
    rows = CASES[case]
    with mp.workdps(50):
        proved = [float(position.divergence()) for position in exact(rows)]
    torch.testing.assert_close(
        topk_proximity(signals(rows), FORWARD_KL)[0], torch.tensor(proved, dtype=torch.float64), rtol=1e-9, atol=1e-12
    )
