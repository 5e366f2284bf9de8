"""Search for the smallest rational policies at which a criterion and the truth differ in sign.

Policies are enumerated with all probabilities multiples of 1/N, for N = 2, 3, ... and, for one N, in lexicographic
order, so what is found first has the smallest common denominator. Values are floats; one that lies within TIE of zero
counts as a tie, which is no disagreement. Floats err by less than a thousandth of that, and a theorem checks what was
found with exact numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sympy import Rational

from derivations import formulas
from derivations.tails import COLLISION

TIE = 1e-11
LARGEST = 24  # the last denominator that is tried

Parts = tuple[int, ...]


@dataclass(frozen=True)
class Example:
    """mu and pi as multiples of 1/denominator. Token 0 is sampled; the first `retained` tokens are retained."""

    denominator: int
    mu: Parts
    pi: Parts
    retained: int

    def policies(self, backend: str) -> tuple[list[Any], list[Any]]:
        """(mu, pi) as floats (backend "math") or exact numbers ("sympy")."""
        divide = Rational if backend == "sympy" else lambda part, whole: part / whole
        return [divide(x, self.denominator) for x in self.mu], [divide(x, self.denominator) for x in self.pi]

    def __str__(self) -> str:
        mu, pi = (", ".join(map(str, parts)) for parts in (self.mu, self.pi))
        tail = f", S = the first {self.retained}" if self.retained < len(self.mu) else ""
        return rf"$\mu = ({mu}) / {self.denominator}$, $\pi = ({pi}) / {self.denominator}$, $k = 0${tail}"


Criterion = Callable[[str, Example, str], tuple[Any, Any]]  # measure, example, backend -> (criterion, truth)


def _ratio(measure: str, example: Example, backend: str) -> tuple[Any, Any]:
    mu, pi = example.policies(backend)
    return pi[0] - mu[0], formulas.direction_full(mu, pi, 0, backend, measure=measure)


def _local(measure: str, example: Example, backend: str) -> tuple[Any, Any]:
    mu, pi = example.policies(backend)
    return (
        formulas.local_term(mu, pi, 0, backend, measure=measure),
        formulas.direction_full(mu, pi, 0, backend, measure=measure),
    )


def _rule(rule: str) -> Criterion:
    """The rule's slope against the exact one of the reduced measure; "collision" is that, so against the full one."""

    def values(measure: str, example: Example, backend: str) -> tuple[Any, Any]:
        mu, pi = example.policies(backend)
        m = example.retained
        masses = sum(mu[m:]), sum(pi[m:]), 0, len(mu) - m
        squares = sum(p * p for p in pi[m:])
        guess, exact = (
            formulas.direction_topk(mu[:m], pi[:m], *masses, name, squares, backend, measure=measure)
            for name in (rule, "collision")
        )
        return guess, formulas.direction_full(mu, pi, 0, backend, measure=measure) if rule == "collision" else exact

    return values


def _merged(measure: str, example: Example, backend: str) -> tuple[Any, Any]:
    """(full minus reduced, reduced): a lower bound never makes the first negative."""
    mu, pi = example.policies(backend)
    m = example.retained
    reduced = formulas.divergence_topk(measure, mu[:m], pi[:m], sum(mu[m:]), sum(pi[m:]), backend)
    return formulas.divergence(measure, mu, pi, backend) - reduced, reduced


CRITERIA: dict[str, Criterion] = {
    "ratio": _ratio,
    "local": _local,
    **{rule: _rule(rule) for rule in COLLISION},
    "merged": _merged,
}


def compositions(whole: int, parts: int) -> Iterator[Parts]:
    """All ways to write `whole` as an ordered sum of `parts` positive integers, in lexicographic order."""
    if parts == 1:
        yield (whole,)
        return
    for first in range(1, whole - parts + 2):
        for rest in compositions(whole - first, parts - 1):
            yield (first, *rest)


def is_topk_support(mu: Parts, retained: int) -> bool:
    """Whether the first `retained` tokens are a Top-K of mu and the sampled token 0, which may be one of them or rare.

    Every retained token but the sampled one is then at least as likely as any of the tail; alone, token 0 is the Top-1.
    """
    return retained == len(mu) or min(mu[1:retained], default=mu[0]) >= max(mu[retained:])


def _candidates(measure: str, denominator: int, tokens: int, retained: int) -> Iterator[Example]:
    """Every case once: tokens that a formula treats alike come in order."""
    for mu in compositions(denominator, tokens):
        if not is_topk_support(mu, retained):
            continue
        for pi in compositions(denominator, tokens):
            pairs = list(zip(mu, pi, strict=True))
            if measure == "tv" and any(p == q for p, q in pairs):
                continue  # TV has a kink there
            if pairs[1:retained] == sorted(pairs[1:retained]) and pairs[retained:] == sorted(pairs[retained:]):
                yield Example(denominator, mu, pi, retained)


@lru_cache(maxsize=256)
def smallest(measure: str, criterion: str, tokens: int, retained: int) -> Example | None:
    """The first example at which criterion and truth have opposite signs; None if there is none up to LARGEST.

    criterion: one of CRITERIA. retained: number of retained tokens, the sampled one among them; `tokens` for no tail.
    """
    for denominator in range(tokens, LARGEST + 1):
        for example in _candidates(measure, denominator, tokens, retained):
            seen, truth = CRITERIA[criterion](measure, example, "math")
            if min(abs(seen), abs(truth)) > TIE and (seen > 0) != (truth > 0):
                return example
    return None
