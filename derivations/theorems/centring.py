"""The global term is the baseline of the local one, and what follows for the mean step."""

from __future__ import annotations

import random

from mpmath import fsum, mpf
from sympy import Expr, IndexedBase, Integer

from derivations import arbitrary, measures, setting
from derivations.arbitrary import g
from derivations.numeric import DIVERGENCES, GENTLE, Certificate, Comparison, Pair, certificate, evaluate, random_pairs
from derivations.proof import Proof, Step
from derivations.setting import FULL, c, i, j, k, mu, pi
from derivations.sums import total
from derivations.theorem import Claim, Claims, Theorem, register
from derivations.theorems.any_divergence import MEAN, S2, slopes

advantage = IndexedBase("A", real=True)  # A_i, the advantage that token i would have at this state
LOCAL = pi[i] * (g[i] - MEAN)  # of token i


def prove(claims: Claims) -> list[Step]:
    proof = Proof(setting.FACTS)
    terms: dict[str, Expr] = {}
    for part, direction_name, direction in setting.PARTS:
        divergence = measures.over_vocabulary(arbitrary.share, setting.along(direction))
        slope = proof.differentiate(f"{part} term: differentiate along {direction_name}", divergence, c, Integer(0))
        terms[part] = arbitrary.in_table(slope).xreplace({k: j})  # k is a free token: call it j
    mean = total(pi[j] * terms["local"], j, FULL)
    proof.equal(r"average the local term of token $j$ under $\pi$", mean, claims["mean"])
    proof.equal("the global term is the same with the opposite sign", terms["global"], -claims["mean"])
    direction = terms["local"] + terms["global"]
    proof.equal(r"so the slope has mean zero under $\pi$", total(pi[j] * direction, j, FULL), Integer(0))
    ratio = pi[j] / mu[j]
    proof.equal(r"and weighted by $r$ it has mean zero under $\mu$",
                total(mu[j] * ratio * direction, j, FULL), Integer(0))  # fmt: skip
    drift = total(mu[j] * advantage[j] * ratio * direction, j, FULL)
    proof.equal(r"with advantages, $c = \eta A r$: the mean first-order change per $\eta$ is a covariance",
                drift, claims["drift"])  # fmt: skip
    return proof.steps


def certify(claims: Claims, dps: int, seed: int) -> Certificate:
    rng = random.Random(seed)

    def compare(check: Comparison, pair: Pair) -> None:
        size = len(pair.mu)
        row = [mpf(rng.gauss(0, 1)) for _ in range(size)]
        states = [Pair(pair.mu, pair.logits, token) for token in range(size)]
        for name, divergence in DIVERGENCES.items():
            known = {"pi": pair.pi, "g": slopes(check, name, pair), "A": row, "n": size}

            def slope(direction: list[mpf], d=divergence) -> mpf:
                return check.along(pair, direction, lambda policy: d(pair.mu, policy))

            local = [slope(state.axis(state.k)) for state in states]
            full = [slope(state.step) for state in states]
            mean = fsum(p * x for p, x in zip(pair.pi, local, strict=True))
            check.equal(evaluate(claims["mean"], known), mean, f"{name}: mean of the local term")
            check.equal(-mean, slope([-p for p in pair.pi]), f"{name}: global term")
            check.equal(mpf(0), fsum(p * x for p, x in zip(pair.pi, full, strict=True)), f"{name}: mean of the slope")
            ratios = [q / p for p, q in zip(pair.mu, pair.pi, strict=True)]
            drift = fsum(p * a * r * x for p, a, r, x in zip(pair.mu, row, ratios, full, strict=True))
            check.equal(evaluate(claims["drift"], known), drift, f"{name}: mean change per eta")

    return certificate(dps, random_pairs(seed, 4, (3, 2, 5), widths=GENTLE), compare)


def _covariance() -> Expr:
    means = total(pi[i] * advantage[i], i, FULL), total(pi[i] * LOCAL, i, FULL)
    return total(pi[i] * advantage[i] * LOCAL, i, FULL) - means[0] * means[1]


THEOREM = register(
    Theorem(
        name="centring",
        title="The global term centres the local one",
        statement=(
            r"For any divergence, the mean of the local term over tokens drawn from $\pi$ is the first amount, and the "
            r"global term is its negative: the slope is the local term minus its mean. So the slope averages to zero "
            r"under $\pi$, and weighted by $r$ under $\mu$. If token $i$ has advantage $A_i$, the mean of $A r$ times "
            r"the slope over tokens drawn from $\mu$, the expected first-order change per $\eta$, is the covariance of "
            r"$A$ and the local term $\pi_i (g_i - \sum \pi g)$ under $\pi$. The ratio rule reads the local term "
            r"without its baseline."
        ),
        source="own derivation",
        mark="N",
        assumptions=(*setting.ASSUMPTIONS, r"$D = \sum_i f(\mu_i, \pi_i)$, $g_i$ the slope of $f$ in $\pi_i$"),
        claims=(
            Claim("mean", r"\sum_i \pi_i\, \text{local}_i", total(pi[i] ** 2 * g[i], i, FULL) - MEAN * S2),
            Claim("drift", r"\sum_i \mu_i A_i r_i\, \text{slope}_i", _covariance()),
        ),
        prover=prove,
        certifier=certify,
    )
)
