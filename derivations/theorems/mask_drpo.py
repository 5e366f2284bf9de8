"""Mask-DRPO: the regulariser only outside DPPO's region."""

from __future__ import annotations

from itertools import product

from mpmath import mpf
from sympy import Abs, Expr, Integer, Symbol, sign

from derivations import objectives, setting
from derivations.cases import size
from derivations.numeric import Certificate, Comparison, Pair, certificate, evaluate, random_pairs
from derivations.objectives import delta, r
from derivations.proof import Proof, Step
from derivations.setting import A, k, mu, pi
from derivations.theorem import Claim, Claims, Theorem, register
from derivations.theorems import drpo_coefficient

OUTSIDE = (1 + sign(Abs(pi[k] - mu[k]) - delta)) / 2  # 1 where |pi_k - mu_k| > delta, 0 where below

_t, _room = Symbol("t", positive=True), Symbol("s", positive=True)
#: place of pi_k -> (pi_k - mu_k, delta, outside)
PLACES: dict[str, tuple[Expr, Expr, bool]] = {
    r"\pi_k > \mu_k + \delta": (delta + _t, delta, True),
    r"\mu_k < \pi_k < \mu_k + \delta": (_t, _t + _room, False),
    r"\mu_k - \delta < \pi_k < \mu_k": (-_t, _t + _room, False),
    r"\pi_k < \mu_k - \delta": (-delta - _t, delta, True),
}


def prove(claims: Claims) -> list[Step]:
    proof = Proof(setting.FACTS)
    slopes = {
        outside: proof.differentiate(
            f"differentiate the objective {'outside' if outside else 'inside'} the region, in $r$",
            objectives.mask_drpo(r, A, mu[k], delta, outside),
            r,
        )
        for outside in (True, False)
    }
    for advantage, (place, (moved, radius, outside)) in product((size, -size), PLACES.items()):
        name = f"$A {'>' if advantage == size else '<'} 0$, ${place}$"
        here = slopes[outside].xreplace({A: advantage, r: 1 + moved / mu[k], delta: radius})
        weight = claims["weight"].xreplace({A: advantage, pi[k]: mu[k] + moved, delta: radius})
        proof.equal(f"{name}: $dJ/dr = A w$", here, advantage * weight)
        if moved == delta + _t:
            outward = advantage == size
            proof.equal(
                f"{name}: {'outward' if outward else 'inward'}, the weight starts at the edge with",
                here.xreplace({_t: Integer(0)}) / advantage,
                Integer(0 if outward else 2),
            )
    return proof.steps


def certify(claims: Claims, dps: int, seed: int) -> Certificate:
    def compare(check: Comparison, pair: Pair) -> None:
        mu_k, pi_k = pair.mu[pair.k], pair.pi[pair.k]
        for advantage, radius in drpo_coefficient.tried():
            for shift in (pi_k - mu_k, 2 * radius, -2 * radius, radius / 2, -radius / 2):
                known = {"mu": [mu_k], "pi": [mu_k + shift], "k": 0, "delta": radius, "A": advantage}

                def value(h: mpf, d=radius, a=advantage, s=shift) -> mpf:
                    if abs(s) > d:
                        return drpo_coefficient.scaled_objective(mu_k + s + h, mu_k, a, d)
                    return (mu_k + s + h) * a

                check.equal(evaluate(claims["weight"], known), check.slope(value) / advantage, "w = (dJ/dr) / A")

    return certificate(dps, random_pairs(seed, 8, (2, 4)), compare)


THEOREM = register(
    Theorem(
        name="mask_drpo",
        title="Mask-DRPO",
        statement=(
            r"DRPO's regulariser only where $|\pi_k - \mu_k| > \delta$ gives the weight below: 1 inside the region, "
            r"DRPO's outside. At the edge it jumps, outward from 1 to 0, so that there DPPO's mask and it agree, and "
            r"inward from 1 to 2."
        ),
        source="arXiv 2606.09821, Fig. 11; derived from its description",
        mark="S",
        assumptions=(r"$0 < \mu_k < 1$, $0 < \pi_k < 1$, $\delta > 0$, $A \neq 0$, $|\pi_k - \mu_k| \neq \delta$",),
        claims=(Claim("weight", r"w", 1 - OUTSIDE * sign(A * (pi[k] / mu[k] - 1)) * Abs(pi[k] - mu[k]) / delta),),
        prover=prove,
        certifier=certify,
    )
)
