"""Per-token objectives as SymPy expressions of the importance ratio r = pi_k / mu_k."""

from __future__ import annotations

from sympy import Abs, Expr, Symbol

r = Symbol("r", positive=True)
delta = Symbol("delta", positive=True)


def drpo(ratio: Expr, advantage: Expr, mu_k: Expr, radius: Expr) -> Expr:
    """r A - |A| mu_k (r - 1)^2 / (2 delta): arXiv 2606.09821, Eq. 8 [F], one token, to be maximised."""
    return ratio * advantage - Abs(advantage) * mu_k * (ratio - 1) ** 2 / (2 * radius)
