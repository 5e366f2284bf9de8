"""The proved formulas as numeric functions of plain lists, for holding other implementations against them.

Nothing is typed in twice: every function evaluates the SymPy expression that its theorem proves or starts from.
V vocabulary, M = m retained tokens. Distributions are lists indexed by token (V) or by place in the support (M).

backend: "math" for floats (default) or "mpmath" for mpf numbers at mpmath's current precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from sympy import Expr, Min, Symbol

from derivations import measures, objectives
from derivations.numeric import evaluate
from derivations.setting import FULL, RETAINED, A, i, k, mu, pi
from derivations.sums import total
from derivations.tails import COLLISION, c2, mu_T, pi_T
from derivations.theorems import (
    aggregated_tail,
    binary_measures,
    drpo_coefficient,
    finite_step,
    finite_step_topk,
    interval_rounding,
    local_global_split,
    mask_drpo,
    measure_slopes,
    penalties,
    ppo_mask,
    predictive_direction,
    reduced_measures,
    reduced_tail,
    uniform_tail,
)
from derivations.theorems import full_interval as interval
from derivations.theorems import spo_weight as spo

Number = Any  # float or mpf

MEASURES = measures.NAMES
PENALTIES = objectives.PENALTIES
RULES = tuple(COLLISION)

_CLASS = {name: measures.term(name)(mu[i], pi[i]) for name in MEASURES}
_FULL = {name: total(share, i, FULL) for name, share in _CLASS.items()}
_REDUCED = {name: total(share, i, RETAINED) + measures.term(name)(mu_T, pi_T) for name, share in _CLASS.items()}
_BINARY = {name: measures.binary(measures.term(name), mu[k], pi[k]) for name in MEASURES}
_KL_TAIL_RULES = {
    "aggregated": aggregated_tail.THEOREM.claim("direction"),
    "uniform": uniform_tail.THEOREM.claim("direction"),
    "collision": reduced_tail.THEOREM.claim("direction"),
    "none": reduced_tail.THEOREM.claim("direction").xreplace({c2: COLLISION["none"]}),
}
_DRPO_OBJECTIVE = objectives.drpo(pi[k] / mu[k], A, mu[k], objectives.delta)
_END = {label: interval.THEOREM.claim(label) for label in ("low", "high", "scarce", "sharp")}
_LOW = _END["low"] + _END["scarce"]
_HIGH = Min(_END["high"], interval.SEEN + _END["sharp"])
_S2 = Symbol("S2", positive=True)
_SPO_OBJECTIVE = objectives.spo(pi[k] / mu[k], A, objectives.eps)


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


def _known(measure: str) -> None:
    if measure not in MEASURES:
        raise ValueError(f"measure is {measure!r}, allowed are {', '.join(MEASURES)}")


def _same_length(first: Sequence[Number], second: Sequence[Number], place: int | None) -> None:
    if len(first) != len(second):
        raise ValueError(f"mu has {len(first)} entries, pi has {len(second)}; they must match")
    if place is not None and not 0 <= place < len(first):
        raise ValueError(f"the sampled token's place is {place}, allowed are 0 to {len(first) - 1}")


def divergence(measure: str, mu: Sequence[Number], pi: Sequence[Number], backend: str = "math") -> Number:
    """D(mu || pi) over V tokens, all entries positive; nats where a logarithm occurs."""
    _known(measure)
    _same_length(mu, pi, None)
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
    _known(measure)
    _same_length(mu_S, pi_S, None)
    if mu_T == 0 and pi_T == 0:
        return divergence(measure, mu_S, pi_S, backend)
    values = {"mu": mu_S, "pi": pi_S, "m": len(mu_S), "mu_T": mu_T, "pi_T": pi_T}
    return evaluate(_REDUCED[measure], values, backend)


def divergence_binary(measure: str, mu_k: Number, pi_k: Number, backend: str = "math") -> Number:
    """The same on two classes, the sampled token and the rest; 0 < mu_k, pi_k < 1."""
    _known(measure)
    return evaluate(_BINARY[measure], {"mu": [mu_k], "pi": [pi_k], "k": 0}, backend)


def forward_kl(mu: Sequence[Number], pi: Sequence[Number], backend: str = "math") -> Number:
    """KL(mu || pi) in nats over V tokens, all entries positive."""
    return divergence("forward_kl", mu, pi, backend)


def forward_kl_topk(
    mu_S: Sequence[Number], pi_S: Sequence[Number], mu_T: Number, pi_T: Number, backend: str = "math"
) -> Number:
    """Forward KL in nats on M retained tokens and one tail class of mass mu_T, pi_T, all positive."""
    return divergence_topk("forward_kl", mu_S, pi_S, mu_T, pi_T, backend)


def direction_full(
    mu: Sequence[Number], pi: Sequence[Number], k: int, backend: str = "math", *, measure: str = "forward_kl"
) -> Number:
    """Slope of D(mu || pi) along the step on token k, per unit of c.

    Theorems predictive_direction (Eq. 7, forward KL) and measure_slopes (all others). TV needs mu_i != pi_i.
    """
    _known(measure)
    _same_length(mu, pi, k)
    values = {"mu": mu, "pi": pi, "k": k, "n": len(mu)}
    if measure == "forward_kl":
        return evaluate(predictive_direction.THEOREM.claim("direction"), values, backend)
    return sum(evaluate(part, values, backend) for part in _local_and_global(measure))


def local_term(
    mu: Sequence[Number], pi: Sequence[Number], k: int, backend: str = "math", *, measure: str = "forward_kl"
) -> Number:
    """The part of direction_full from raising the sampled logit alone: theorems local_global_split, measure_slopes."""
    _known(measure)
    _same_length(mu, pi, k)
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
    _known(measure)
    _same_length(mu_S, pi_S, position)
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
    _known(measure)
    values = {"mu": [mu_k], "pi": [pi_k], "k": 0, "S2": sum_pi_squared}
    motion = binary_measures.THEOREM.claim("motion").xreplace({binary_measures.S2: _S2})
    return evaluate(binary_measures.THEOREM.claim(measure) * motion, values, backend)


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
    _same_length(mu_S, pi_S, position)
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
    _same_length(mu_S, pi_S, position)
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
    _same_length(mu, pi, k)
    values = {"mu": mu, "pi": pi, "k": k, "n": len(mu), "c": size}
    return evaluate(finite_step.THEOREM.claim("change"), values, backend)


def curvature(mu: Sequence[Number], pi: Sequence[Number], k: int, backend: str = "math") -> Number:
    """Second derivative of KL(mu || pi) along the step on token k, at c = 0: theorem finite_step."""
    _same_length(mu, pi, k)
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
    _same_length(mu_S, pi_S, position)
    values = {"mu": mu_S, "pi": pi_S, "k": position, "m": len(mu_S), "mu_T": mu_T, "pi_T": pi_T}
    values |= {"c": size, "gamma": tail_rate}
    return evaluate(finite_step_topk.THEOREM.claim("change"), values, backend)


def drpo_weight(mu_k: Number, pi_k: Number, advantage: Number, delta: Number, backend: str = "math") -> Number:
    """DRPO's weight w of one token: theorem drpo_coefficient. The coefficient of grad log pi is w r A."""
    values = {"mu": [mu_k], "pi": [pi_k], "k": 0, "A": advantage, "delta": delta}
    return evaluate(drpo_coefficient.THEOREM.claim("weight"), values, backend)


def drpo_objective(mu_k: Number, pi_k: Number, advantage: Number, delta: Number, backend: str = "math") -> Number:
    """DRPO's objective of one token (Eq. 8), to be maximised; a loss is its negative."""
    values = {"mu": [mu_k], "pi": [pi_k], "k": 0, "A": advantage, "delta": delta}
    return evaluate(_DRPO_OBJECTIVE, values, backend)


def mask_drpo_weight(mu_k: Number, pi_k: Number, advantage: Number, delta: Number, backend: str = "math") -> Number:
    """Mask-DRPO's weight of one token, |pi_k - mu_k| != delta: theorem mask_drpo."""
    values = {"mu": [mu_k], "pi": [pi_k], "k": 0, "A": advantage, "delta": delta}
    return evaluate(mask_drpo.THEOREM.claim("weight"), values, backend)


def spo_weight(mu_k: Number, pi_k: Number, advantage: Number, epsilon: Number, backend: str = "math") -> Number:
    """SPO's weight w of one token: theorem spo_weight. The coefficient of grad log pi is w r A."""
    values = {"mu": [mu_k], "pi": [pi_k], "k": 0, "A": advantage, "epsilon": epsilon}
    return evaluate(spo.THEOREM.claim("weight"), values, backend)


def spo_objective(mu_k: Number, pi_k: Number, advantage: Number, epsilon: Number, backend: str = "math") -> Number:
    """SPO's objective of one token, to be maximised."""
    values = {"mu": [mu_k], "pi": [pi_k], "k": 0, "A": advantage, "epsilon": epsilon}
    return evaluate(_SPO_OBJECTIVE, values, backend)


def penalised_slope(penalty: str, ratio: Number, advantage: Number, weight: Number, backend: str = "math") -> Number:
    """dJ/dr of r A - weight * penalty(r), r != 1 for tv: theorem penalties. Times r: the coefficient of grad log pi."""
    if penalty not in PENALTIES:
        raise ValueError(f"penalty is {penalty!r}, allowed are {', '.join(PENALTIES)}")
    return evaluate(penalties.THEOREM.claim(penalty), {"r": ratio, "A": advantage, "lambda": weight}, backend)


def ppo_slope(ratio: Number, advantage: Number, epsilon: Number, backend: str = "math") -> Number:
    """dJ/dr of PPO's clipped objective, r off the edges of the band: theorem ppo_mask."""
    return evaluate(ppo_mask.THEOREM.claim("coefficient"), {"r": ratio, "A": advantage, "epsilon": epsilon}, backend)
