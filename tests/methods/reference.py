"""The papers' formulas once more, one token at a time, in plain Python: what the definition tests compare with.

Nothing here shares code or an operation with `methods`. A distribution is a list of probabilities over the vocabulary;
a row's candidates are ids into it. Sources: arXiv 2607.10848 (predictive masks), 2606.09821 (DRPO), 2602.04879 (DPPO).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

Distribution = Sequence[float]


@dataclass(frozen=True)
class Token:
    """One response token: both distributions, the rollout's candidates, the sampled id and the advantage."""

    mu: Distribution
    pi: Distribution
    candidates: Sequence[int]
    sampled: int
    advantage: float

    @property
    def retained(self) -> list[int]:
        """S: the candidates and the sampled token, each once."""
        return sorted({*self.candidates, self.sampled})

    @property
    def replaced(self) -> Token:
        """The same token under Stable-RL's rule: a sampled token from outside stands in place of the last candidate."""
        kept = self.candidates if self.sampled in self.candidates else sorted(self.candidates, key=self.above)[1:]
        return replace(self, candidates=kept)

    def above(self, token: int) -> float:
        """mu of a token, to sort by."""
        return self.mu[token]

    def classes(self, p: Distribution) -> list[float]:
        """Masses on S and the tail's, as one distribution."""
        return [p[i] for i in self.retained] + [math.fsum(x for i, x in enumerate(p) if i not in self.retained)]


def ratio(token: Token, cap: float | None) -> float:
    log_ratio = math.log(token.pi[token.sampled]) - math.log(token.mu[token.sampled])
    value = math.exp(max(-20.0, min(20.0, log_ratio)))
    return value if cap is None else min(value, cap)


def tails(token: Token) -> tuple[float, float]:
    """(mu_T, pi_T): what S leaves over."""
    mu_tail, pi_tail = 1.0, 1.0
    for i in token.retained:
        mu_tail -= token.mu[i]
        pi_tail -= token.pi[i]
    return max(mu_tail, 0.0), max(pi_tail, 0.0)


def term(weight: float, numerator: float, denominator: float) -> float:
    return 0.0 if weight == 0 else weight * math.log(numerator / denominator)


def topk_kl(token: Token) -> float:
    """Eq. 16 of the DPPO paper."""
    mu_tail, pi_tail = tails(token)
    total = term(mu_tail, mu_tail, pi_tail)
    for i in token.retained:
        total += term(token.mu[i], token.mu[i], token.pi[i])
    return total


def topk_tv(token: Token) -> float:
    """Eq. 15 of the DPPO paper."""
    mu_tail, pi_tail = tails(token)
    total = abs(mu_tail - pi_tail)
    for i in token.retained:
        total += abs(token.mu[i] - token.pi[i])
    return total / 2


def direction_full(token: Token) -> float:
    """Eq. 7 of the predictive-mask paper."""
    total = token.pi[token.sampled] - token.mu[token.sampled]
    for mu_i, pi_i in zip(token.mu, token.pi, strict=True):
        total += pi_i * (mu_i - pi_i)
    return total


def direction_topk(token: Token, rule: str) -> float:
    """Eqs. 10 (aggregated) and 11 (uniform)."""
    mu_tail, pi_tail = tails(token)
    total = token.pi[token.sampled] - token.mu[token.sampled]
    for i in token.retained:
        total += token.pi[i] * (token.mu[i] - token.pi[i])
    unseen = len(token.mu) - len(token.retained)
    share = {"aggregated": 1.0, "uniform": 1.0 / max(unseen, 1)}[rule]
    return total + pi_tail * (mu_tail - pi_tail) * share


def mask(token: Token, distance: float, direction: float, low: float, high: float) -> float:
    radius = high if token.advantage > 0 else low
    return 0.0 if distance > radius and token.advantage * direction > 0 else 1.0


def pg_is(token: Token, cap: float | None = None) -> float:
    return ratio(token, cap) * token.advantage


def ppo(
    token: Token, eps_low: float = 0.2, eps_high: float = 0.28, dual_clip: float | None = None, cap: float | None = 5.0
) -> float:
    r = ratio(token, None)
    if token.advantage > 0 and r > 1 + eps_high:
        return 0.0
    if token.advantage < 0 and r < 1 - eps_low:
        return 0.0
    if token.advantage < 0 and dual_clip is not None and r > dual_clip:
        return 0.0
    return pg_is(token, cap)


def dppo_topk_kl(token: Token, low: float = 0.15, high: float = 0.15, cap: float | None = 5.0) -> float:
    moved = token.pi[token.sampled] - token.mu[token.sampled]
    return pg_is(token, cap) * mask(token, topk_kl(token), moved, low, high)


def predictive(token: Token, rule: str, low: float = 0.15, high: float = 0.15, cap: float | None = 5.0) -> float:
    return pg_is(token, cap) * mask(token, topk_kl(token), direction_topk(token, rule), low, high)


def drpo(token: Token, delta: float = 12.5, cap: float | None = None) -> float:
    """Table 1 of the DRPO paper, with the sign and the absolute value written out as there."""
    mu, pi = token.mu[token.sampled], token.pi[token.sampled]
    outward = token.advantage * (pi / mu - 1)
    sign = (outward > 0) - (outward < 0)
    return pg_is(token, cap) * (1 - sign * abs(pi - mu) / delta)


# (method, options, formula): every method with its defaults, some with more options. `lines` in helpers reads it.
LINES: list[tuple[str, dict[str, Any], Callable[[Token], float] | None]] = [
    ("drpo", {}, drpo),
    ("drpo", {"delta": 0.15}, lambda token: drpo(token, delta=0.15)),
    ("pg_is", {}, pg_is),
    ("ppo_clip_higher", {}, ppo),
    ("dppo_topk_kl", {}, dppo_topk_kl),
    ("predictive_aggregated", {}, lambda token: predictive(token, "aggregated")),
    ("predictive_uniform", {}, lambda token: predictive(token, "uniform")),
]


def softmax(logits: Sequence[float]) -> list[float]:
    top = max(logits)
    powers = [math.exp(z - top) for z in logits]
    total = sum(powers)
    return [p / total for p in powers]


def divergence(name: str, mu: Distribution, pi: Distribution) -> float:
    pairs = list(zip(mu, pi, strict=True))
    if name == "forward_kl":
        return sum(term(m, m, p) for m, p in pairs)
    if name == "reverse_kl":
        return sum(term(p, p, m) for m, p in pairs)
    if name == "tv":
        return sum(abs(m - p) for m, p in pairs) / 2
    if name == "jeffreys":
        return divergence("forward_kl", mu, pi) + divergence("reverse_kl", mu, pi)
    if name == "js":
        middle = [(m + p) / 2 for m, p in pairs]
        return (divergence("forward_kl", mu, middle) + divergence("forward_kl", pi, middle)) / 2
    if name == "hellinger2":
        return 1 - sum(math.sqrt(m * p) for m, p in pairs)
    if name == "chi2_pearson":
        return sum(p * p / m for m, p in pairs) - 1
    if name == "chi2_neyman":
        return sum(m * m / p for m, p in pairs) - 1
    if name == "l2":
        return sum(m * m - 2 * m * p + p * p for m, p in pairs) / 2
    raise ValueError(name)


def slope(name: str, mu: Distribution, logits: Sequence[float], k: int, kept: Sequence[int] | None = None) -> float:
    """Central difference of the divergence along e_k - pi in the logits; `kept`: pool all other ids into one class."""
    pi = softmax(logits)
    step = 1e-6

    def pooled(p: Distribution) -> list[float]:
        if kept is None:
            return list(p)
        return [p[i] for i in kept] + [sum(x for i, x in enumerate(p) if i not in kept)]

    def value(c: float) -> float:
        moved = [z + c * ((i == k) - pi[i]) for i, z in enumerate(logits)]
        return divergence(name, pooled(mu), pooled(softmax(moved)))

    return (value(step) - value(-step)) / (2 * step)


def aggregate(
    losses: Sequence[Sequence[float]], valid: Sequence[Sequence[int]], mode: str, horizon: float | None = None
) -> float:
    """verl's aggregation modes; an empty row is no sequence, an empty batch is 0."""
    rows = [[x for x, m in zip(row, keep, strict=True) if m] for row, keep in zip(losses, valid, strict=True)]
    rows = [row for row in rows if row]
    if not rows:
        return 0.0
    sums = [math.fsum(row) for row in rows]
    if mode == "token-sum":
        return math.fsum(sums)
    if mode == "token-mean":
        return math.fsum(sums) / sum(len(row) for row in rows)
    if mode == "seq-mean-token-sum":
        return math.fsum(sums) / len(rows)
    if mode == "seq-mean-token-sum-norm":
        return math.fsum(sums) / len(rows) / (len(valid[0]) if horizon is None else horizon)
    if mode == "seq-mean-token-mean":
        return math.fsum(s / len(row) for s, row in zip(sums, rows, strict=True)) / len(rows)
    raise ValueError(mode)
