"""The mask family once more, one token at a time, in plain Python (see reference.py, whose tools it uses).

Slopes are written out measure by measure from their tables, not by differentiating. Sources: DPPO paper
(arXiv 2602.04879) Eqs. 13-15, predictive-mask paper (2607.10848) Eq. 13; the rest is ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tests.methods.reference import Distribution, Token, divergence, mask, pg_is


def logit_slopes(name: str, mu: Distribution, pi: Distribution) -> list[float]:
    """h_i of a distribution without zeros: the closed forms of the local term, measure by measure."""
    pairs = list(zip(mu, pi, strict=True))
    if name == "forward_kl":
        return [p - m for m, p in pairs]
    if name == "reverse_kl":
        return [p * (math.log(p / m) - divergence("reverse_kl", mu, pi)) for m, p in pairs]
    if name == "jeffreys":
        return [a + b for a, b in zip(*(logit_slopes(n, mu, pi) for n in ("forward_kl", "reverse_kl")), strict=True)]
    if name == "js":
        middle = [(m + p) / 2 for m, p in pairs]
        q = divergence("reverse_kl", middle, pi)
        return [p / 2 * (math.log(p / c) - q) for (_, p), c in zip(pairs, middle, strict=True)]
    if name == "hellinger2":
        overlap = sum(math.sqrt(m * p) for m, p in pairs)
        return [(overlap * p - math.sqrt(m * p)) / 2 for m, p in pairs]
    if name == "chi2_pearson":
        return [2 * p * (p / m - 1 - divergence(name, mu, pi)) for m, p in pairs]
    if name == "chi2_neyman":
        return [p * (1 + divergence(name, mu, pi) - (m / p) ** 2) for m, p in pairs]
    if name == "l2":
        mean = sum(p * (p - m) for m, p in pairs)
        return [p * (p - m - mean) for m, p in pairs]
    if name == "tv":
        signs = [(p > m) - (p < m) for m, p in pairs]
        mean = sum(p * s for (_, p), s in zip(pairs, signs, strict=True))
        return [p / 2 * (s - mean) for (_, p), s in zip(pairs, signs, strict=True)]
    raise ValueError(name)


def collision(token: Token, rule: str) -> float:
    """c2 of a tail rule."""
    tail = [i for i in range(len(token.mu)) if i not in token.retained]
    mass = math.fsum(token.pi[i] for i in tail)
    return {
        "none": 0.0,
        "uniform": mass**2 / max(len(tail), 1),
        "collision": math.fsum(token.pi[i] ** 2 for i in tail),
        "aggregated": mass**2,
    }[rule]


def direction(token: Token, name: str, tail: str) -> float:
    """h_k - sum_S pi_i h_i - (c2 / pi_T) h_T, or over the whole vocabulary."""
    if tail == "full":
        slopes = logit_slopes(name, token.mu, token.pi)
        return slopes[token.sampled] - sum(p * h for p, h in zip(token.pi, slopes, strict=True))
    mu, pi = token.classes(token.mu), token.classes(token.pi)
    slopes = logit_slopes(name, mu, pi)
    retained = sum(p * h for p, h in zip(pi[:-1], slopes[:-1], strict=True))
    return slopes[token.retained.index(token.sampled)] - retained - collision(token, tail) / pi[-1] * slopes[-1]


def distance(token: Token, name: str, tail: str) -> float:
    """The divergence that a mask compares with its radius."""
    if name.startswith("binary_"):
        mu, pi = token.mu[token.sampled], token.pi[token.sampled]
        name = {"binary_kl": "binary_forward_kl"}.get(name, name).removeprefix("binary_")
        return divergence(name, [mu, 1 - mu], [pi, 1 - pi])
    if tail == "full":
        return divergence(name, token.mu, token.pi)
    return divergence(name, token.classes(token.mu), token.classes(token.pi))


def dppo(token: Token, measure: str, delta: float, support: str = "added", cap: float | None = 5.0) -> float:
    token = token.replaced if support == "replaced" else token
    moved = token.pi[token.sampled] - token.mu[token.sampled]
    return pg_is(token, cap) * mask(token, distance(token, measure, "none"), moved, delta, delta)


def predictive(
    token: Token,
    measure: str = "forward_kl",
    tail: str = "collision",
    region: str | None = None,
    support: str = "added",
    delta: float = 0.15,
    cap: float | None = 5.0,
) -> float:
    token = token.replaced if support == "replaced" else token
    outward = direction(token, measure, tail)
    return pg_is(token, cap) * mask(token, distance(token, region or measure, tail), outward, delta, delta)


def interval(token: Token, known_collision: bool) -> tuple[float, float]:
    """Bounds of the full forward-KL direction, with the two sums of the tail bounded one by one."""
    tail = [i for i in range(len(token.mu)) if i not in token.retained]
    mu_tail, pi_tail = (math.fsum(p[i] for i in tail) for p in (token.mu, token.pi))
    base = direction(token, "forward_kl", "none")
    largest = min(mu_tail, min(token.mu[i] for i in token.candidates))
    if not known_collision:
        return base - pi_tail**2, base + pi_tail * largest - pi_tail**2 / len(tail)
    c2 = collision(token, "collision")
    return base - c2, base + min(pi_tail * largest, math.sqrt(c2 * mu_tail * largest)) - c2


def certified(token: Token, fallback: str = "keep", delta: float = 0.15) -> float:
    low, high = interval(token, known_collision=True)
    if low > 0 or high < 0:
        outward = low if low > 0 else high
    elif fallback == "keep":
        outward = 0.0
    elif fallback == "ratio":
        outward = token.pi[token.sampled] - token.mu[token.sampled]
    else:
        outward = direction(token, "forward_kl", fallback)
    return pg_is(token, 5.0) * mask(token, distance(token, "forward_kl", "none"), outward, delta, delta)


def change(token: Token, size: float, tail: str) -> float:
    """Forward KL after a step of that size minus before, the tail a class that moves by -c2 / pi_T."""
    if tail == "full":
        mu, pi = list(token.mu), list(token.pi)
        moves = [-p for p in pi]
        moves[token.sampled] += 1
    else:
        mu, pi = token.classes(token.mu), token.classes(token.pi)
        moves = [-p for p in pi]
        moves[-1] = -collision(token, tail) / pi[-1]
        moves[token.retained.index(token.sampled)] += 1
    after = [p * math.exp(size * u) for p, u in zip(pi, moves, strict=True)]
    total = sum(after)
    return divergence("forward_kl", mu, [p / total for p in after]) - divergence("forward_kl", mu, pi)


def finite_step(token: Token, step: float = 0.1, tail: str = "uniform", delta: float = 0.15) -> float:
    before, moved = distance(token, "forward_kl", tail), change(token, step * pg_is(token, 5.0), tail)
    return 0.0 if before + moved > delta and moved > 0 else pg_is(token, 5.0)


def _composed(measure: str, tail: str) -> Callable[[Token], float]:
    return lambda token: predictive(token, measure, tail, delta=0.1)


# A mask drawn by chance is no function of one token: its definition is test_random_mask.py.
LINES: list[tuple[str, dict[str, Any], Callable[[Token], float] | None]] = [
    ("dppo_binary_tv", {}, lambda t: dppo(t, "binary_tv", 0.2)),
    ("dppo_binary_kl", {}, lambda t: dppo(t, "binary_kl", 0.05)),
    ("dppo_topk_tv", {}, lambda t: dppo(t, "tv", 0.2)),
    ("predictive", {}, predictive),
    ("predictive", {"tail": "full"}, lambda t: predictive(t, tail="full")),
    ("predictive_certified", {}, certified),
    ("predictive_finite_step", {}, finite_step),
    ("predictive_random", {}, None),
]
OPTIONS: list[tuple[str, dict[str, Any], Callable[[Token], float]]] = [
    ("dppo_topk_kl", {"support": "replaced"}, lambda t: dppo(t, "forward_kl", 0.15, "replaced")),
    ("dppo_topk_tv", {"support": "replaced", "delta": 0.1}, lambda t: dppo(t, "tv", 0.1, "replaced")),
    ("predictive_aggregated", {"support": "replaced"}, lambda t: predictive(t, tail="aggregated", support="replaced")),
    ("predictive_uniform", {"support": "replaced"}, lambda t: predictive(t, tail="uniform", support="replaced")),
    (
        "predictive",
        {"divergence": "binary_js", "delta": 0.02},
        lambda t: predictive(t, region="binary_js", delta=0.02),
    ),
    ("predictive", {"tail": "full", "divergence": "l2"}, lambda t: predictive(t, tail="full", region="l2")),
    ("predictive", {"support": "replaced", "ratio_cap": None}, lambda t: predictive(t, support="replaced", cap=None)),
    ("predictive_certified", {"fallback": "ratio", "delta": 0.05}, lambda t: certified(t, "ratio", 0.05)),
    ("predictive_certified", {"fallback": "aggregated"}, lambda t: certified(t, "aggregated")),
    ("predictive_finite_step", {"step": 1.0, "tail": "full"}, lambda t: finite_step(t, 1.0, "full")),
    ("predictive_finite_step", {"tail": "aggregated", "delta": 0.3}, lambda t: finite_step(t, 0.1, "aggregated", 0.3)),
    *(
        ("predictive", {"measure": name, "tail": tail, "delta": 0.1}, _composed(name, tail))
        for name in ("reverse_kl", "tv", "jeffreys", "js", "hellinger2", "chi2_pearson", "chi2_neyman", "l2")
        for tail in ("none", "aggregated", "uniform", "collision", "full")
    ),
]
