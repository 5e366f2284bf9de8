"""Where DRPO's objective for one token is largest."""

from __future__ import annotations

from mpmath import mpf
from sympy import Integer, sign

from derivations import objectives, setting
from derivations.cases import size
from derivations.numeric import Certificate, Comparison, Pair, certificate, evaluate, random_pairs
from derivations.objectives import delta, r
from derivations.proof import Proof, Step
from derivations.setting import A, k, mu
from derivations.theorem import Claim, Claims, Theorem, register
from derivations.theorems import drpo_coefficient


def prove(claims: Claims) -> list[Step]:
    proof = Proof(setting.FACTS)
    slope = proof.differentiate("differentiate the objective in $r$", objectives.drpo(r, A, mu[k], delta), r)
    bend = proof.differentiate("and once more", slope, r)
    for name, advantage in (("$A > 0$", size), ("$A < 0$", -size)):
        proof.greater(
            f"{name}: the objective is strictly concave in $r$, so it has at most one stationary point, its maximum",
            Integer(0),
            bend.xreplace({A: advantage}),
        )
        at = (claims["stationary"] / mu[k]).xreplace({A: advantage})
        proof.equal(
            rf"{name}: the slope vanishes at $r = \pi^* / \mu_k$",
            slope.xreplace({A: advantage}).xreplace({r: at}),
            Integer(0),
        )
    return proof.steps


def certify(claims: Claims, dps: int, seed: int) -> Certificate:
    def compare_one(check: Comparison, pair: Pair, advantage: mpf, radius: mpf) -> None:
        known = {"mu": pair.mu, "k": pair.k, "delta": radius, "A": advantage}
        best = evaluate(claims["stationary"], known)

        def value(shift: mpf) -> mpf:
            return drpo_coefficient.scaled_objective(best + shift, pair.mu[pair.k], advantage, radius)

        at_best = value(mpf(0))
        check.equal(check.slope(value), mpf(0), "slope at the stationary point")
        for away in (-radius / 8, radius / 8):
            check.at_most(value(away), at_best, "maximum")

    def compare(check: Comparison, pair: Pair) -> None:
        for advantage, radius in drpo_coefficient.tried():
            compare_one(check, pair, advantage, radius)

    return certificate(dps, random_pairs(seed, 8, (2, 4)), compare)


THEOREM = register(
    Theorem(
        name="drpo_stationary",
        title="DRPO: stationary point",
        statement=(
            r"As a function of $r$ the objective of one token is strictly concave. Its maximum, where $w = 0$, is at "
            r"the probability $\pi^*$ below: the edge of the region $|\pi_k - \mu_k| \le \delta$. The policy can reach "
            r"it only where that lies between 0 and 1."
        ),
        source="arXiv 2606.09821, sec. 3",
        mark="S",
        assumptions=(r"$\mu_k > 0$, $\delta > 0$, $A \neq 0$",),
        claims=(Claim("stationary", r"\pi^*", mu[k] + sign(A) * delta),),
        prover=prove,
        certifier=certify,
    )
)
