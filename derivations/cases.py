"""Case splits for formulas with signs and absolute values.

SymPy cannot compare two symbols, so a statement about sign(A (r - 1)) |pi_k - mu_k| is proved once per case, with the
case written into the symbols: A = a or -a, and pi_k = mu_k + t, mu_k or mu_k - t, with a = |A| > 0 and t > 0 declared.
No case sits on a kink that is then differentiated: the objectives are smooth in r, only their coefficients are
written with |.|.
"""

from __future__ import annotations

from dataclasses import dataclass

from sympy import Abs, Expr, Integer, Symbol, cancel, factor, sign

from derivations.proof import ProofError
from derivations.setting import A, k, mu, pi

size = Symbol("|A|", positive=True)
shift = Symbol("t", positive=True)  # |pi_k - mu_k|


@dataclass(frozen=True)
class Case:
    name: str
    advantage: Expr
    moved: Expr  # pi_k - mu_k


CASES = tuple(
    Case(rf"$A {'>' if s > 0 else '<'} 0$, $\pi_k {relation} \mu_k$", s * size, moved)
    for s in (1, -1)
    for relation, moved in ((">", shift), ("<", -shift), ("=", Integer(0)))
)


def in_case(expr: Expr, case: Case) -> Expr:
    """`expr` where A, pi_k are what the case says; every sign() and |.| of them is then resolved."""
    placed = expr.xreplace({A: case.advantage, pi[k]: mu[k] + case.moved})
    placed = placed.replace(sign, lambda x: sign(factor(cancel(x)))).replace(Abs, lambda x: Abs(factor(cancel(x))))
    if left := placed.atoms(sign, Abs):
        raise ProofError(f"case {case.name} leaves the sign undecided in {left}")
    return placed
