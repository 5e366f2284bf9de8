"""The slope along the step for any divergence that is a sum over tokens."""

from __future__ import annotations

from functools import partial

from mpmath import mpf
from sympy import Integer

from derivations import arbitrary, measures, setting
from derivations.arbitrary import g
from derivations.numeric import DIVERGENCES, GENTLE, Certificate, Comparison, Pair, certificate, evaluate, random_pairs
from derivations.proof import Proof, Step
from derivations.setting import FULL, c, i, j, k, pi
from derivations.sums import total
from derivations.theorem import Claim, Claims, Theorem, register

S2 = total(pi[i] ** 2, i, FULL)
MEAN = total(pi[j] * g[j], j, FULL)


def prove(claims: Claims) -> list[Step]:
    proof = Proof(setting.FACTS)
    for part, direction_name, direction in setting.PARTS:
        divergence = measures.over_vocabulary(arbitrary.share, setting.along(direction))
        slope = proof.differentiate(f"{part} term: differentiate along {direction_name}", divergence, c, Integer(0))
        proof.equal(
            f"write $g_i$ for the slope of $f$ in $\\pi_i$: the {part} term", arbitrary.in_table(slope), claims[part]
        )
    whole = measures.over_vocabulary(arbitrary.share, setting.along(setting.step))
    slope = proof.differentiate("differentiate along $e_k - \\pi$", whole, c, Integer(0))
    proof.equal("it is the sum of both", arbitrary.in_table(slope), claims["local"] + claims["global"])
    return proof.steps


def slopes(check: Comparison, name: str, pair: Pair) -> list[mpf]:
    """g_i of a measure by finite differences of one token's share, for every token."""
    share = DIVERGENCES[name]

    def slope(p: mpf, q: mpf) -> mpf:
        return check.slope(lambda h: share([p], [q * (1 + h)])) / q

    return [slope(p, q) for p, q in zip(pair.mu, pair.pi, strict=True)]


def certify(claims: Claims, dps: int, seed: int) -> Certificate:
    def compare(check: Comparison, pair: Pair) -> None:
        directions = {"local": pair.axis(pair.k), "global": [-p for p in pair.pi]}
        for name, divergence in DIVERGENCES.items():
            known = {"pi": pair.pi, "g": slopes(check, name, pair), "k": pair.k, "n": len(pair.mu)}
            for part, direction in directions.items():
                measured = check.along(pair, direction, partial(divergence, pair.mu))
                check.equal(evaluate(claims[part], known), measured, f"{name}: {part} term")

    return certificate(dps, random_pairs(seed, 4, (3, 2, 6), widths=GENTLE), compare)


THEOREM = register(
    Theorem(
        name="any_divergence",
        title="Slope of any divergence along the step",
        statement=(
            r"Let $D = \sum_i f(\mu_i, \pi_i)$ with any $f$ that can be differentiated in $\pi_i$, with slope $g_i$. "
            r"Its slope along $e_k - \pi$ is the sum of a local term, from raising the sampled logit alone, and a "
            r"global term, from lowering every logit by its probability. Nothing else about $D$ enters."
        ),
        source="own derivation",
        mark="N",
        assumptions=(*setting.ASSUMPTIONS, r"$f$ is differentiable in $\pi_i$ at the current policy"),
        claims=(
            Claim("local", r"\text{local term}", pi[k] * (g[k] - MEAN)),
            Claim("global", r"\text{global term}", MEAN * S2 - total(pi[i] ** 2 * g[i], i, FULL)),
        ),
        prover=prove,
        certifier=certify,
    )
)
