"""The slope of any divergence on a support and one tail class: all tail rules as one formula in c2."""

from __future__ import annotations

from mpmath import fsum
from mpmath import log as mp_log
from sympy import Integer

from derivations import arbitrary, measures, tails
from derivations.arbitrary import g, g_T
from derivations.numeric import (
    DIVERGENCES,
    GENTLE,
    Certificate,
    Comparison,
    Pair,
    certificate,
    evaluate,
    merge_tail,
    of_merged,
    random_pairs,
    retained,
)
from derivations.proof import Proof, Step
from derivations.setting import RETAINED, c, i, j, k, pi
from derivations.sums import total
from derivations.tails import COLLISION, c2, mu_T, pi_T
from derivations.theorem import Claim, Claims, Theorem, register
from derivations.theorems.any_divergence import slopes

MEAN = total(pi[j] * g[j], j, RETAINED) + pi_T * g_T


def prove(claims: Claims) -> list[Step]:
    proof = Proof(tails.FACTS)
    claimed = claims["direction"]
    for name, (policy, tail), collision in (
        ("true tail", tails.exact_tail(), c2),
        ("one logit for the whole tail", tails.one_logit_tail(), COLLISION["aggregated"]),
        ("flat tail", tails.flat_tail(), COLLISION["uniform"]),
    ):
        divergence = measures.over_support(arbitrary.share, policy, mu_T, tail)
        slope = proof.differentiate(
            f"{name}: differentiate the reduced divergence along the step", divergence, c, Integer(0)
        )
        proof.equal(f"{name}: write $g$ for the slopes of $f$; the claim with this tail's $c_2$",
                    arbitrary.in_table(slope), claimed.xreplace({c2: collision}))  # fmt: skip
    return proof.steps


def certify(claims: Claims, dps: int, seed: int) -> Certificate:
    def compare(check: Comparison, pair: Pair) -> None:
        m = (len(pair.mu) + 1) // 2
        known = {**retained(pair, m), "c2": fsum(p * p for p in pair.pi[m:])}
        merged = merge_tail(pair.mu, m)
        classes = Pair(merged, [mp_log(p) for p in merge_tail(pair.pi, m)], pair.k)
        for name, divergence in DIVERGENCES.items():
            *retained_slopes, tail_slope = slopes(check, name, classes)
            exact = check.along(pair, pair.step, of_merged(divergence, pair.mu, m))
            values = {**known, "g": retained_slopes, "g_T": tail_slope}
            check.equal(evaluate(claims["direction"], values), exact, f"{name}: slope of the reduced divergence")

    pairs = (p for size in (5, 4, 7) for p in random_pairs(seed + size, 8, (size,), (size + 1) // 2, GENTLE))
    return certificate(dps, pairs, compare)


THEOREM = register(
    Theorem(
        name="any_reduced",
        title="Slope of any reduced divergence: one formula for all tail rules",
        statement=(
            r"Let $\tilde{D}$ be any divergence on the retained tokens and the tail as one class, with slopes $g_i$ "
            r"and $g_T$ in its probabilities. Its slope along the step depends on the unseen tokens through $c_2$ "
            r"alone. With the true $c_2$ it is exact; $\pi_T^2$ (aggregated) is exact for a tail of one logit, "
            r"$\pi_T^2 / (n - m)$ (uniform) for a flat tail; 0 (none) drops the tail's motion."
        ),
        source="own derivation",
        mark="N",
        assumptions=(
            *tails.ASSUMPTIONS,
            r"the divergence is a sum of shares $f(\mu, \pi)$, $f$ differentiable in $\pi$",
        ),
        claims=(
            Claim(
                "direction",
                r"d \tilde{D} / dc",
                pi[k] * (g[k] - MEAN) - total(pi[i] ** 2 * (g[i] - MEAN), i, RETAINED) - c2 * (g_T - MEAN),
            ),
        ),
        prover=prove,
        certifier=certify,
    )
)
