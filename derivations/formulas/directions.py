"""Slopes of a divergence along the softmax step on one token, by what is known of the vocabulary.

V vocabulary, M = m retained tokens; c the size of the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from sympy import Expr, Symbol

from derivations.formulas.divergences import Number, known, same_length
from derivations.numeric import evaluate
from derivations.tails import COLLISION, c2
from derivations.theorems import (
    aggregated_tail,
    binary_measures,
    local_global_split,
    measure_slopes,
    predictive_direction,
    reduced_measures,
    reduced_tail,
    uniform_tail,
)

RULES = tuple(COLLISION)

_KL_TAIL_RULES = {
    "aggregated": aggregated_tail.THEOREM.claim("direction"),
    "uniform": uniform_tail.THEOREM.claim("direction"),
    "collision": reduced_tail.THEOREM.claim("direction"),
    "none": reduced_tail.THEOREM.claim("direction").xreplace({c2: COLLISION["none"]}),
}
_S2 = Symbol("S2", positive=True)


def _local_and_global(measure: str) -> tuple[Expr, Expr]:
    if measure == "forward_kl":
        return local_global_split.THEOREM.claim("local"), local_global_split.THEOREM.claim("global")
    return measure_slopes.THEOREM.claim(f"{measure}, local"), measure_slopes.THEOREM.claim(f"{measure}, global")


@lru_cache(maxsize=64)
def _reduced_slope(measure: str, rule: str) -> Expr:
    if measure == "forward_kl":
        return _KL_TAIL_RULES[rule]
    tail = reduced_measures.THEOREM.claim(measure)
    return reduced_measures.reduced_slope(measure, tail, COLLISION[rule])


def direction_full(
    mu: Sequence[Number], pi: Sequence[Number], k: int, backend: str = "math", *, measure: str = "forward_kl"
) -> Number:
    """Slope of D(mu || pi) along the step on token k, per unit of c.

    Theorems predictive_direction (Eq. 7, forward KL) and measure_slopes (all others). TV needs mu_i != pi_i.
    """
    known(measure)
    same_length(mu, pi, k)
    values = {"mu": mu, "pi": pi, "k": k, "n": len(mu)}
    if measure == "forward_kl":
        return evaluate(predictive_direction.THEOREM.claim("direction"), values, backend)
    return sum(evaluate(part, values, backend) for part in _local_and_global(measure))


def local_term(
    mu: Sequence[Number], pi: Sequence[Number], k: int, backend: str = "math", *, measure: str = "forward_kl"
) -> Number:
    """The part of direction_full from raising the sampled logit alone: theorems local_global_split, measure_slopes."""
    known(measure)
    same_length(mu, pi, k)
    return evaluate(_local_and_global(measure)[0], {"mu": mu, "pi": pi, "k": k, "n": len(mu)}, backend)


def direction_topk(
    mu_S: Sequence[Number],
    pi_S: Sequence[Number],
    mu_T: Number,
    pi_T: Number,
    position: int,
    n_minus_m: int,
    rule: str,
    tail_collision: Number | None = None,
    backend: str = "math",
    *,
    measure: str = "forward_kl",
) -> Number:
    """Slope of the reduced divergence along the step, by a tail rule (Eqs. 10, 11; theorem reduced_measures).

    position: place of the sampled token among the M retained ones. n_minus_m: number of tail tokens, at least 1 for
    the rule "uniform", where it is used. tail_collision: sum over the tail of pi_j^2, needed by the rule "collision".
    An empty tail (mu_T = pi_T = 0) has no tail term under any rule, nor has pi_T = 0 for the forward KL. Raises
    ValueError for anything else.
    """
    known(measure)
    same_length(mu_S, pi_S, position)
    if rule not in RULES:
        raise ValueError(f"rule is {rule!r}, allowed are {', '.join(RULES)}")
    if rule == "uniform" and n_minus_m < 1:
        raise ValueError(f"n_minus_m is {n_minus_m}, allowed are 1 and above under the rule 'uniform'")
    if rule == "collision" and tail_collision is None:
        raise ValueError("the rule 'collision' needs tail_collision, the sum of pi_j^2 over the tail")
    if mu_T == 0 and pi_T == 0:
        return direction_full(mu_S, pi_S, position, backend, measure=measure)
    if pi_T == 0 and measure == "forward_kl":  # c2 / pi_T <= pi_T tends to 0; the formula would divide 0 by 0
        rule, pi_T, tail_collision = "none", 1, 0
    if mu_T == 0 or pi_T == 0:
        raise ValueError(f"mu_T is {mu_T}, pi_T is {pi_T}: for {measure} both are 0 or both are positive")
    m = len(mu_S)
    values = {"mu": mu_S, "pi": pi_S, "k": position, "m": m, "n": m + n_minus_m, "mu_T": mu_T, "pi_T": pi_T}
    return evaluate(_reduced_slope(measure, rule), {**values, "c2": tail_collision}, backend)


def direction_binary(measure: str, mu_k: Number, pi_k: Number, sum_pi_squared: Number, backend: str = "math") -> Number:
    """Slope of the two-class divergence along the step: theorem binary_measures. sum_pi_squared: over all V tokens."""
    known(measure)
    values = {"mu": [mu_k], "pi": [pi_k], "k": 0, "S2": sum_pi_squared}
    motion = binary_measures.THEOREM.claim("motion").xreplace({binary_measures.S2: _S2})
    return evaluate(binary_measures.THEOREM.claim(measure) * motion, values, backend)
