"""The proved formulas as numeric functions of plain lists, for holding other implementations against them.

Nothing is typed in twice: every function evaluates the SymPy expression that its theorem proves or starts from.
V vocabulary, M = m retained tokens. Distributions are lists indexed by token (V) or by place in the support (M).

backend: "math" for floats (default) or "mpmath" for mpf numbers at mpmath's current precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from derivations import measures, objectives
from derivations.numeric import evaluate
from derivations.setting import FULL, RETAINED, A, i, k, mu, pi
from derivations.sums import total
from derivations.tails import COLLISION, c2, mu_T, pi_T
from derivations.theorems import aggregated_tail, drpo_coefficient, predictive_direction, reduced_tail, uniform_tail

Number = Any  # float or mpf

_KL_FULL = total(measures.forward_kl(mu[i], pi[i]), i, FULL)
_KL_REDUCED = total(measures.forward_kl(mu[i], pi[i]), i, RETAINED) + measures.forward_kl(mu_T, pi_T)
_TAIL_RULES = {
    "aggregated": aggregated_tail.THEOREM.claim("direction"),
    "uniform": uniform_tail.THEOREM.claim("direction"),
    "collision": reduced_tail.THEOREM.claim("direction"),
    "none": reduced_tail.THEOREM.claim("direction").xreplace({c2: COLLISION["none"]}),
}
_DRPO_OBJECTIVE = objectives.drpo(pi[k] / mu[k], A, mu[k], objectives.delta)
RULES = tuple(_TAIL_RULES)


def _same_length(first: Sequence[Number], second: Sequence[Number], place: int | None) -> None:
    if len(first) != len(second):
        raise ValueError(f"mu has {len(first)} entries, pi has {len(second)}; they must match")
    if place is not None and not 0 <= place < len(first):
        raise ValueError(f"the sampled token's place is {place}, allowed are 0 to {len(first) - 1}")


def forward_kl(mu: Sequence[Number], pi: Sequence[Number], backend: str = "math") -> Number:
    """KL(mu || pi) in nats over V tokens, all entries positive."""
    _same_length(mu, pi, None)
    return evaluate(_KL_FULL, {"mu": mu, "pi": pi, "n": len(mu)}, backend)


def forward_kl_topk(
    mu_S: Sequence[Number], pi_S: Sequence[Number], mu_T: Number, pi_T: Number, backend: str = "math"
) -> Number:
    """Forward KL in nats on M retained tokens and one tail class of mass mu_T, pi_T, all positive."""
    _same_length(mu_S, pi_S, None)
    values = {"mu": mu_S, "pi": pi_S, "m": len(mu_S), "mu_T": mu_T, "pi_T": pi_T}
    return evaluate(_KL_REDUCED, values, backend)


def direction_full(mu: Sequence[Number], pi: Sequence[Number], k: int, backend: str = "math") -> Number:
    """Slope of KL(mu || pi) along the step on token k, nats per unit of c: theorem predictive_direction (Eq. 7)."""
    _same_length(mu, pi, k)
    values = {"mu": mu, "pi": pi, "k": k, "n": len(mu)}
    return evaluate(predictive_direction.THEOREM.claim("direction"), values, backend)


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
) -> Number:
    """Slope of the reduced forward KL along the step, by a tail rule (Eqs. 10, 11; theorem reduced_tail).

    position: place of the sampled token among the M retained ones. n_minus_m: number of tail tokens, at least 1 for
    the rule "uniform", where it is used. tail_collision: sum over the tail of pi_j^2, needed by the rule "collision".
    An empty tail (pi_T = 0) has no tail term under any rule. Raises ValueError for anything else.
    """
    _same_length(mu_S, pi_S, position)
    if rule not in _TAIL_RULES:
        raise ValueError(f"rule is {rule!r}, allowed are {', '.join(RULES)}")
    if rule == "uniform" and n_minus_m < 1:
        raise ValueError(f"n_minus_m is {n_minus_m}, allowed are 1 and above under the rule 'uniform'")
    if rule == "collision" and tail_collision is None:
        raise ValueError("the rule 'collision' needs tail_collision, the sum of pi_j^2 over the tail")
    if pi_T == 0:  # c2 / pi_T <= pi_T tends to 0; the formula itself would divide 0 by 0
        rule, pi_T, tail_collision = "none", 1, 0
    m = len(mu_S)
    values = {"mu": mu_S, "pi": pi_S, "k": position, "m": m, "n": m + n_minus_m, "mu_T": mu_T, "pi_T": pi_T}
    return evaluate(_TAIL_RULES[rule], {**values, "c2": tail_collision}, backend)


def drpo_weight(mu_k: Number, pi_k: Number, advantage: Number, delta: Number, backend: str = "math") -> Number:
    """DRPO's weight w of one token: theorem drpo_coefficient. The coefficient of grad log pi is w r A."""
    values = {"mu": [mu_k], "pi": [pi_k], "k": 0, "A": advantage, "delta": delta}
    return evaluate(drpo_coefficient.THEOREM.claim("weight"), values, backend)


def drpo_objective(mu_k: Number, pi_k: Number, advantage: Number, delta: Number, backend: str = "math") -> Number:
    """DRPO's objective of one token (Eq. 8), to be maximised; a loss is its negative."""
    values = {"mu": [mu_k], "pi": [pi_k], "k": 0, "A": advantage, "delta": delta}
    return evaluate(_DRPO_OBJECTIVE, values, backend)
