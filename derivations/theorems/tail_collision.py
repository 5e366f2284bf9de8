"""How much the tail rules can be wrong: the range of the tail's collision mass, and the bracket that follows."""

from __future__ import annotations

from functools import partial
from typing import Any

from mpmath import fsum, mpf
from mpmath import log as mp_log
from sympy import Expr, Integer, Symbol

from derivations import measures, tails
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
from derivations.setting import TAIL, c, i, m, n, pi
from derivations.sums import total
from derivations.tails import COLLISION, c2, mu_T, pi_T
from derivations.theorem import Claim, Claims, Theorem, register
from derivations.theorems.uniform_tail import flat_pair

LEAST, LARGEST = COLLISION["uniform"], COLLISION["aggregated"]


def prove(claims: Claims) -> list[Step]:
    proof = Proof(tails.FACTS)
    mean = pi_T / (n - m)
    proof.equal(
        "above the least value by a sum of squares, zero exactly for a flat tail",
        c2 - claims["least"],
        total((pi[i] - mean) ** 2, i, TAIL),
    )
    proof.equal(
        r"below the largest by a sum of products, nonnegative as $\pi_i \le \pi_T$ and zero for a tail of one token",
        claims["largest"] - c2,
        total(pi[i] * (pi_T - pi[i]), i, TAIL),
    )
    policy, tail = tails.exact_tail()
    divergence = measures.over_support(measures.forward_kl, policy, mu_T, tail)
    slope = proof.differentiate("slope of the reduced forward KL, with the true $c_2$", divergence, c, Integer(0))
    _mixture(proof, "forward KL", slope, claims)
    one_logit, correction = Symbol("P", real=True), Symbol("Q", real=True)
    every = one_logit + (pi_T**2 - c2) * correction
    _mixture(proof, "every measure (theorem reduced_measures)", every, claims)
    width = claims["largest"] - claims["least"]
    proof.equal("the share is not negative: times the width it is the first sum above",
                claims["share"] * width, c2 - claims["least"])  # fmt: skip
    proof.equal("and not above 1: what it lacks, times the width, is the second",
                (1 - claims["share"]) * width, claims["largest"] - c2)  # fmt: skip
    return proof.steps


def _mixture(proof: Proof, name: str, slope: Expr, claims: Claims) -> None:
    low, high = (slope.xreplace({c2: claims[end]}) for end in ("least", "largest"))
    share = claims["share"]
    proof.equal(f"{name}: linear in $c_2$, so a mixture of the two rules", slope, (1 - share) * low + share * high)


def certify(claims: Claims, dps: int, seed: int) -> Certificate:
    edge = mpf(10) ** (-(dps // 2) - 2)

    def compare(check: Comparison, pair: Pair) -> None:
        m = (len(pair.mu) + 1) // 2
        size = len(pair.mu) - m
        known: dict[str, Any] = {**retained(pair, m), "n": len(pair.mu), "c2": fsum(p * p for p in pair.pi[m:])}
        least, largest, share = (evaluate(claims[label], known) for label in ("least", "largest", "share"))
        check.at_most(least, known["c2"], "least collision mass")
        check.at_most(known["c2"], largest, "largest collision mass")
        mass = known["pi_T"]
        check.equal(least, fsum((mass / size) ** 2 for _ in range(size)), "a flat tail")
        one = [mass * (1 - edge), *[mass * edge / (size - 1)] * (size - 1)]
        check.at_most(abs(largest - fsum(p * p for p in one)), 4 * edge, "a tail that is nearly one token")
        merged = merge_tail(pair.mu, m)
        classes = Pair(merged, [mp_log(p) for p in merge_tail(pair.pi, m)], pair.k)
        flat = flat_pair(classes, size)
        for name in measures.NAMES:
            divergence = partial(DIVERGENCES[name], merged)
            exact = check.along(pair, pair.step, of_merged(DIVERGENCES[name], pair.mu, m))
            aggregated = check.along(classes, classes.step, divergence)
            uniform = check.along(flat, flat.step, of_merged(DIVERGENCES[name], pair.mu, m))
            check.equal((1 - share) * uniform + share * aggregated, exact, f"{name}: mixture of the two rules")
            check.at_most(min(uniform, aggregated), exact, f"{name}: bracket")
            check.at_most(exact, max(uniform, aggregated), f"{name}: bracket")

    sizes = (5, 4, 7)
    pairs = (p for size in sizes for p in random_pairs(seed + size, 4, (size,), (size + 1) // 2, GENTLE))
    return certificate(dps, pairs, compare)


def _share() -> Expr:
    return (c2 - LEAST) / (LARGEST - LEAST)


THEOREM = register(
    Theorem(
        name="tail_collision",
        title="The two tail rules bracket the exact slope",
        statement=(
            r"The tail's collision mass $c_2$ lies between that of a flat tail and that of a tail in one token, and "
            r"reaches both ends. The slope of every reduced divergence is linear in $c_2$, so the exact one is a "
            r"mixture of the uniform and the aggregated rule with the share below, between 0 and 1, of the latter: "
            r"where both rules have one sign, that sign is right."
        ),
        source="own derivation",
        mark="N",
        assumptions=(*tails.ASSUMPTIONS, r"$n - m \ge 2$ for the share (with one unseen token the rules coincide)"),
        claims=(
            Claim("least", r"\min c_2", LEAST),
            Claim("largest", r"\sup c_2", LARGEST),
            Claim("share", r"\text{share of the aggregated rule}", _share()),
        ),
        prover=prove,
        certifier=certify,
    )
)
