"""f-divergences in one variable: a class's share is mu phi(pi / mu), and its slope in pi is phi'(pi / mu).

A lemma used by several theorems: phi' is increasing (phi'' > 0), so that the slopes of two classes are ordered as
their ratios are, and phi lies above its tangents. TV has a kink in the place of curvature and is treated by cases.
"""

from __future__ import annotations

from sympy import Expr, Integer, Symbol, cancel, factor, together

from derivations import measures
from derivations.proof import Proof, ProofError

w = Symbol("w", positive=True)  # a ratio pi_i / mu_i
_mu = Symbol("mu_i", positive=True)
_pi = Symbol("pi_i", positive=True)

SMOOTH = tuple(name for name in measures.F_DIVERGENCES if name != "tv")


def slope_in_ratio(proof: Proof, name: str) -> Expr:
    """phi'(w) of a smooth f-divergence, by differentiating one class's share; refused if mu does not drop out."""
    slope = proof.differentiate(f"{name}: differentiate one class's share in its probability",
                                measures.term(name)(_mu, _pi), _pi)  # fmt: skip
    at_ratio = cancel(together(proof.facts.normal(slope.xreplace({_pi: w * _mu}))))
    at_ratio = at_ratio.xreplace({_mu: Integer(1)}) if proof.facts.equal(at_ratio.diff(_mu), Integer(0)) else at_ratio
    if _mu in at_ratio.free_symbols:
        raise ProofError(f"{name}: the slope {at_ratio} is no function of the ratio alone")
    return proof.equal(f"{name}: it depends on the ratio $w = \\pi_i / \\mu_i$ alone",
                       slope.xreplace({_pi: w * _mu}), at_ratio)  # fmt: skip


def increasing(proof: Proof, name: str, slope: Expr) -> None:
    """Record that phi' increases."""
    bend = proof.differentiate(f"{name}: differentiate once more", slope, w)
    proof.greater(f"{name}: it increases with the ratio", factor(together(bend)), Integer(0))
