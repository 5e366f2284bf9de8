"""Retained support S and tail T: the assumptions, the tail rules as values of one number, and how the tail moves.

c2 = sum_{j in T} pi_j^2, the collision mass of the tail. It is all that the exact derivative of a reduced divergence
wants to know about the unseen tokens (own derivation [N]); a tail rule is a guess of c2.
"""

from __future__ import annotations

from sympy import Expr, Integer, Sum, Symbol, exp

from derivations.setting import FULL, RETAINED, TAIL, Table, a, c, i, j, k, m, mu, n, pi, q, step
from derivations.sums import Facts, total

mu_T = Symbol("mu_T", positive=True)
pi_T = Symbol("pi_T", positive=True)
c2 = Symbol("c2", positive=True)

#: rule -> the c2 it assumes
COLLISION: dict[str, Expr] = {
    "aggregated": pi_T**2,
    "uniform": pi_T**2 / (n - m),
    "collision": c2,
    "none": Integer(0),
}

S2 = total(pi[i] ** 2, i, RETAINED) + c2  # collision mass of the whole policy

FACTS = Facts(
    inside={k: (FULL, RETAINED), i: (FULL, RETAINED), j: (FULL, RETAINED)},
    outside={k: (TAIL,)},
    known=(
        (total(mu[i], i, FULL), Integer(1)),
        (total(pi[i], i, FULL), Integer(1)),
        (total(mu[i], i, RETAINED), 1 - mu_T),
        (total(pi[i], i, RETAINED), 1 - pi_T),
        (total(mu[i], i, TAIL), mu_T),
        (total(pi[i], i, TAIL), pi_T),
        (total(pi[i] ** 2, i, TAIL), c2),
    ),
)
ASSUMPTIONS = (
    r"$\mu_i > 0$, $\pi_i > 0$, $\sum_i \mu_i = \sum_i \pi_i = 1$; $\mu$ is constant",
    r"$S$ holds $m$ tokens, the sampled $k$ among them; the tail $T$ the other $n - m \ge 1$",
    r"$\mu_T = \sum_{i \in T} \mu_i$, $\pi_T = \sum_{i \in T} \pi_i$, $c_2 = \sum_{i \in T} \pi_i^2$",
)


def _moved(tail_weight: Expr) -> tuple[Table, Expr]:
    """(retained probabilities, tail mass) after the step, given the tail's share of the softmax denominator."""

    def weight(token: Expr) -> Expr:
        return pi[token] * exp(a + c * step(token))

    denominator = total(weight(q), q, RETAINED) + tail_weight
    return (lambda token: weight(token) / denominator), tail_weight / denominator


def exact_tail() -> tuple[Table, Expr]:
    """The step on the true softmax: every tail token moves with its own probability."""
    return _moved(total(pi[q] * exp(a + c * step(q)), q, TAIL))


def one_logit_tail() -> tuple[Table, Expr]:
    """The step on an (m+1)-way softmax whose tail is a single logit."""
    return _moved(pi_T * exp(a - c * pi_T))


def flat_tail() -> tuple[Table, Expr]:
    """The step on the true softmax if its tail is flat, pi_j = pi_T / (n - m)."""
    each = pi_T / (n - m)
    return _moved(total(each * exp(a - c * each), q, TAIL))


def on_classes(expr: Expr) -> Expr:
    """A formula over the whole vocabulary, read on m + 1 classes: the retained tokens and the tail as one more."""

    def split(*arguments: Expr) -> Expr:
        summand, (index, *over) = arguments
        if tuple(over) != FULL:
            raise ValueError(f"only sums over the whole vocabulary can be read on classes, got one over {over}")
        return total(summand, index, RETAINED) + summand.xreplace({mu[index]: mu_T, pi[index]: pi_T})

    return expr.replace(Sum, split)
