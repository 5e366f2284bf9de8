"""Divergences of two distributions: whole, on retained tokens with one tail class, and on two classes.

V vocabulary, M = m retained tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from derivations import measures
from derivations.numeric import evaluate
from derivations.setting import FULL, RETAINED, i, k, mu, pi
from derivations.sums import total
from derivations.tails import mu_T, pi_T

Number = Any  # float or mpf

MEASURES = measures.NAMES

_CLASS = {name: measures.term(name)(mu[i], pi[i]) for name in MEASURES}
_FULL = {name: total(share, i, FULL) for name, share in _CLASS.items()}
_REDUCED = {name: total(share, i, RETAINED) + measures.term(name)(mu_T, pi_T) for name, share in _CLASS.items()}
_BINARY = {name: measures.binary(measures.term(name), mu[k], pi[k]) for name in MEASURES}


def known(measure: str) -> None:
    """Raises ValueError for a measure without a theorem."""
    if measure not in MEASURES:
        raise ValueError(f"measure is {measure!r}, allowed are {', '.join(MEASURES)}")


def same_length(first: Sequence[Number], second: Sequence[Number], place: int | None) -> None:
    """Raises ValueError for distributions that do not match, or a place outside them."""
    if len(first) != len(second):
        raise ValueError(f"mu has {len(first)} entries, pi has {len(second)}; they must match")
    if place is not None and not 0 <= place < len(first):
        raise ValueError(f"the sampled token's place is {place}, allowed are 0 to {len(first) - 1}")


def divergence(measure: str, mu: Sequence[Number], pi: Sequence[Number], backend: str = "math") -> Number:
    """D(mu || pi) over V tokens, all entries positive; nats where a logarithm occurs."""
    known(measure)
    same_length(mu, pi, None)
    return evaluate(_FULL[measure], {"mu": mu, "pi": pi, "n": len(mu)}, backend)


def divergence_topk(
    measure: str,
    mu_S: Sequence[Number],
    pi_S: Sequence[Number],
    mu_T: Number,
    pi_T: Number,
    backend: str = "math",
) -> Number:
    """The same on M retained tokens and one tail class of mass mu_T, pi_T; an empty class (both 0) adds nothing."""
    known(measure)
    same_length(mu_S, pi_S, None)
    if mu_T == 0 and pi_T == 0:
        return divergence(measure, mu_S, pi_S, backend)
    values = {"mu": mu_S, "pi": pi_S, "m": len(mu_S), "mu_T": mu_T, "pi_T": pi_T}
    return evaluate(_REDUCED[measure], values, backend)


def divergence_binary(measure: str, mu_k: Number, pi_k: Number, backend: str = "math") -> Number:
    """The same on two classes, the sampled token and the rest; 0 < mu_k, pi_k < 1."""
    known(measure)
    return evaluate(_BINARY[measure], {"mu": [mu_k], "pi": [pi_k], "k": 0}, backend)


def forward_kl(mu: Sequence[Number], pi: Sequence[Number], backend: str = "math") -> Number:
    """KL(mu || pi) in nats over V tokens, all entries positive."""
    return divergence("forward_kl", mu, pi, backend)


def forward_kl_topk(
    mu_S: Sequence[Number], pi_S: Sequence[Number], mu_T: Number, pi_T: Number, backend: str = "math"
) -> Number:
    """Forward KL in nats on M retained tokens and one tail class of mass mu_T, pi_T, all positive."""
    return divergence_topk("forward_kl", mu_S, pi_S, mu_T, pi_T, backend)
