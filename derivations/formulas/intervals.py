"""What retained tokens say of the forward KL's full slope, and what a step of finite size does to it.

V vocabulary, M = m retained tokens; c the size of the step.
"""

from __future__ import annotations

from collections.abc import Sequence

from sympy import Min

from derivations.formulas.divergences import Number, same_length
from derivations.numeric import evaluate
from derivations.theorems import finite_step, finite_step_topk, interval_rounding
from derivations.theorems import full_interval as interval

_END = {label: interval.THEOREM.claim(label) for label in ("low", "high", "scarce", "sharp")}
_LOW = _END["low"] + _END["scarce"]
_HIGH = Min(_END["high"], interval.SEEN + _END["sharp"])


def full_interval(
    mu_S: Sequence[Number],
    pi_S: Sequence[Number],
    mu_T: Number,
    pi_T: Number,
    position: int,
    n_minus_m: int,
    mu_K: Number,
    backend: str = "math",
) -> tuple[Number, Number]:
    """(low, high): what M retained tokens say about direction_full of the forward KL. Theorem full_interval.

    mu_K: a bound of mu on every one of the n_minus_m >= 1 unseen tokens, the least mu among the candidates.
    """
    same_length(mu_S, pi_S, position)
    m = len(mu_S)
    values = {
        "mu": mu_S, "pi": pi_S, "k": position, "m": m, "n": m + n_minus_m, "mu_T": mu_T, "pi_T": pi_T, "mu_K": mu_K,
    }  # fmt: skip
    return evaluate(_LOW, values, backend), evaluate(_HIGH, values, backend)


def interval_rounding_width(
    mu_S: Sequence[Number],
    pi_S: Sequence[Number],
    mu_T: Number,
    pi_T: Number,
    position: int,
    n_minus_m: int,
    mu_K: Number,
    epsilon: Number,
    backend: str = "math",
) -> tuple[Number, Number]:
    """(below, above): extra width of an interval from probabilities known up to a relative error epsilon.

    Theorem interval_rounding; it speaks of the ends that theorem full_interval calls lower and upper, without the
    refinements by the least overlap and the sharp limit.
    """
    same_length(mu_S, pi_S, position)
    m = len(mu_S)
    values = {
        "mu": mu_S, "pi": pi_S, "k": position, "m": m, "n": m + n_minus_m, "mu_T": mu_T, "pi_T": pi_T, "mu_K": mu_K,
        "epsilon": epsilon,
    }  # fmt: skip
    below, above = (evaluate(interval_rounding.THEOREM.claim(end), values, backend) for end in ("low", "high"))
    return below, above


def finite_step_change(
    mu: Sequence[Number], pi: Sequence[Number], k: int, size: Number, backend: str = "math"
) -> Number:
    """Exact change of KL(mu || pi) after a step of size c on token k: theorem finite_step."""
    same_length(mu, pi, k)
    values = {"mu": mu, "pi": pi, "k": k, "n": len(mu), "c": size}
    return evaluate(finite_step.THEOREM.claim("change"), values, backend)


def curvature(mu: Sequence[Number], pi: Sequence[Number], k: int, backend: str = "math") -> Number:
    """Second derivative of KL(mu || pi) along the step on token k, at c = 0: theorem finite_step."""
    same_length(mu, pi, k)
    return evaluate(finite_step.THEOREM.claim("curvature"), {"pi": pi, "k": k, "n": len(pi)}, backend)


def finite_step_change_topk(
    mu_S: Sequence[Number],
    pi_S: Sequence[Number],
    mu_T: Number,
    pi_T: Number,
    position: int,
    size: Number,
    tail_rate: Number,
    backend: str = "math",
) -> Number:
    """Change of the reduced forward KL if the tail's logit falls by c * tail_rate (= c2 / pi_T): finite_step_topk."""
    same_length(mu_S, pi_S, position)
    values = {"mu": mu_S, "pi": pi_S, "k": position, "m": len(mu_S), "mu_T": mu_T, "pi_T": pi_T}
    values |= {"c": size, "gamma": tail_rate}
    return evaluate(finite_step_topk.THEOREM.claim("change"), values, backend)
