"""Divergences as SymPy expressions, each written once as a term f(mu_i, pi_i) and summed over classes.

These are the only definitions a proof may start from: theorems differentiate them, `formulas` evaluates them.
All values in nats where a logarithm occurs. forward_kl, reverse_kl, tv, jeffreys, js, hellinger2, chi2_pearson and
chi2_neyman are f-divergences, f(mu_i, pi_i) = mu_i phi(pi_i / mu_i) with convex phi; l2 is not.
"""

from __future__ import annotations

from collections.abc import Callable

from sympy import Abs, Expr, Integer, log, sqrt

from derivations.setting import FULL, RETAINED, Table, i, mu
from derivations.sums import total

Term = Callable[[Expr, Expr], Expr]


def forward_kl(mu_i: Expr, pi_i: Expr) -> Expr:
    """One class's share of KL(mu || pi), in nats."""
    return mu_i * log(mu_i / pi_i)


def reverse_kl(mu_i: Expr, pi_i: Expr) -> Expr:
    """KL(pi || mu)."""
    return pi_i * log(pi_i / mu_i)


def tv(mu_i: Expr, pi_i: Expr) -> Expr:
    """Total variation, half the l1 distance."""
    return Abs(pi_i - mu_i) / 2


def jeffreys(mu_i: Expr, pi_i: Expr) -> Expr:
    """KL(mu || pi) + KL(pi || mu)."""
    return forward_kl(mu_i, pi_i) + reverse_kl(mu_i, pi_i)


def js(mu_i: Expr, pi_i: Expr) -> Expr:
    """Jensen-Shannon: the mean KL of mu and pi to their midpoint."""
    middle = (mu_i + pi_i) / 2
    return (mu_i * log(mu_i / middle) + pi_i * log(pi_i / middle)) / 2


def hellinger2(mu_i: Expr, pi_i: Expr) -> Expr:
    """Squared Hellinger distance 1 - sum sqrt(mu pi)."""
    return (sqrt(mu_i) - sqrt(pi_i)) ** 2 / 2


def chi2_pearson(mu_i: Expr, pi_i: Expr) -> Expr:
    """sum (pi - mu)^2 / mu."""
    return (pi_i - mu_i) ** 2 / mu_i


def chi2_neyman(mu_i: Expr, pi_i: Expr) -> Expr:
    """sum (pi - mu)^2 / pi."""
    return (pi_i - mu_i) ** 2 / pi_i


def l2(mu_i: Expr, pi_i: Expr) -> Expr:
    """Half the squared euclidean distance: the geometry of DRPO's regulariser."""
    return (pi_i - mu_i) ** 2 / 2


#: The catalogue, by the names that `methods.measures` uses.
NAMES = (
    "forward_kl", "reverse_kl", "tv", "jeffreys", "js", "hellinger2", "chi2_pearson", "chi2_neyman", "l2",
)  # fmt: skip
F_DIVERGENCES = NAMES[:-1]


def term(name: str) -> Term:
    """The measure of this name, looked up when it is used: a changed definition then reaches every proof."""
    if name not in NAMES:
        raise ValueError(f"measure is {name!r}, allowed are {', '.join(NAMES)}")
    found: Term = globals()[name]
    return found


def over_vocabulary(term: Term, policy: Table) -> Expr:
    """D(mu || policy) with every token its own class."""
    return total(term(mu[i], policy(i)), i, FULL)


def over_support(term: Term, policy: Table, mu_tail: Expr, policy_tail: Expr) -> Expr:
    """D(mu || policy) on m + 1 classes: the retained tokens and the whole tail as one (A, sec. 3.3 [S])."""
    return total(term(mu[i], policy(i)), i, RETAINED) + term(mu_tail, policy_tail)


def binary(term: Term, mu_k: Expr, pi_k: Expr) -> Expr:
    """D of two classes: the sampled token and everything else (DPPO paper, Eqs. 13 and 14 [F])."""
    return term(mu_k, pi_k) + term(Integer(1) - mu_k, Integer(1) - pi_k)
