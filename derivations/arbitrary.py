"""An arbitrary divergence: a sum of shares f(mu_i, pi_i), of which only this is known, that f has a slope g in pi_i."""

from __future__ import annotations

from sympy import Expr, Function, Indexed, IndexedBase, Symbol
from sympy.core.function import ArgumentIndexError

from derivations.setting import pi
from derivations.tails import pi_T

g = IndexedBase("g", real=True)  # g_i = d D / d pi_i at the current policy
g_T = Symbol("g_T", real=True)  # the same for the tail as one class


class _Slope(Function):
    """g(mu_i, pi_i), the derivative of f in its second argument."""

    nargs = 2
    is_real = True


class _Share(Function):
    """f(mu_i, pi_i); mu does not move, so no derivative in it exists."""

    nargs = 2
    is_real = True

    def fdiff(self, argindex: int = 2) -> Expr:
        if argindex != 2:
            raise ArgumentIndexError(self, argindex)
        return _Slope(*self.args)


_Share.__name__, _Slope.__name__ = "f", "g"


def share(mu_i: Expr, pi_i: Expr) -> Expr:
    """One class's share of the divergence; a `Term` of `measures`."""
    return _Share(mu_i, pi_i)


def in_table(expr: Expr) -> Expr:
    """Write g_i for g(mu_i, pi_i) and g_T for g(mu_T, pi_T)."""

    def entry(mu_i: Expr, pi_i: Expr) -> Expr:
        if isinstance(pi_i, Indexed) and pi_i.base == pi:
            return g[pi_i.indices[0]]
        return g_T if pi_i == pi_T else _Slope(mu_i, pi_i)

    return expr.replace(_Slope, entry)
