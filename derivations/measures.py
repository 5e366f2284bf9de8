"""Divergences as SymPy expressions, each written once as a term f(mu_i, pi_i) and summed over classes.

These are the only definitions a proof may start from: theorems differentiate them, `formulas.py` evaluates them.
"""

from __future__ import annotations

from collections.abc import Callable

from sympy import Expr, log

from derivations.setting import FULL, RETAINED, Table, i, mu
from derivations.sums import total

Term = Callable[[Expr, Expr], Expr]


def forward_kl(mu_i: Expr, pi_i: Expr) -> Expr:
    """One class's share of KL(mu || pi), in nats."""
    return mu_i * log(mu_i / pi_i)


def over_vocabulary(term: Term, policy: Table) -> Expr:
    """D(mu || policy) with every token its own class."""
    return total(term(mu[i], policy(i)), i, FULL)


def over_support(term: Term, policy: Table, mu_tail: Expr, policy_tail: Expr) -> Expr:
    """D(mu || policy) on m + 1 classes: the retained tokens and the whole tail as one (A, sec. 3.3 [S])."""
    return total(term(mu[i], policy(i)), i, RETAINED) + term(mu_tail, policy_tail)
