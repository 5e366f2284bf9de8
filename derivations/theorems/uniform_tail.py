"""Eq. 11: the tail spread evenly over the unseen tokens."""

from __future__ import annotations

from functools import partial

from mpmath import log, mpf
from sympy import Expr, Integer, Symbol

from derivations import measures, tails
from derivations.numeric import (
    Certificate,
    Comparison,
    Pair,
    certificate,
    evaluate,
    forward_kl,
    merge_tail,
    random_pairs,
    retained,
)
from derivations.proof import Proof, Step
from derivations.setting import RETAINED, TAIL, c, i, k, m, mu, n, pi
from derivations.sums import total
from derivations.tails import COLLISION, c2, mu_T, pi_T
from derivations.theorem import Claim, Claims, Theorem, register
from derivations.theorems import reduced_tail


def slope(proof: Proof) -> Expr:
    """Slope of the reduced forward KL when the tail of pi is flat, by differentiation."""
    policy, tail = tails.flat_tail()
    divergence = measures.over_support(measures.forward_kl, policy, mu_T, tail)
    return proof.differentiate(r"a flat tail of $\pi$: differentiate the reduced KL", divergence, c, Integer(0))


def prove(claims: Claims) -> list[Step]:
    proof = Proof(tails.FACTS)
    proof.equal("collect retained and tail terms", slope(proof), claims["direction"])
    policy, tail = tails.flat_tail()
    size = n - m
    full = total(measures.forward_kl(mu[i], policy(i)), i, RETAINED)
    full += total(measures.forward_kl(mu_T / size, tail / size), i, TAIL)
    value = proof.differentiate(
        "both tails flat, every token its own class: differentiate the full KL", full, c, Integer(0)
    )
    proof.equal("the full KL has the same slope", value, claims["direction"])
    count = Symbol("N", positive=True)  # n - m
    for name in measures.F_DIVERGENCES:
        term = measures.term(name)
        proof.equal(
            f"{name}: $N$ equal classes weigh as much as one, so with both tails flat, which the step keeps flat, the "
            "full and the reduced divergence are the same",
            count * term(mu_T / count, pi_T / count),
            term(mu_T, pi_T),
        )
    flat = total((pi_T / size) ** 2, i, TAIL)
    guess = proof.equal("collision mass of a flat tail", flat, COLLISION["uniform"])
    general = reduced_tail.THEOREM.claim("direction")
    proof.equal(
        "the same from theorem reduced_tail with that $c_2$", general.xreplace({c2: guess}), claims["direction"]
    )
    return proof.steps


def flat_pair(pair: Pair, size: int) -> Pair:
    """Spread the last class of a pair evenly over `size` tokens."""
    *mu_S, mu_tail = pair.mu
    *logits_S, logit_tail = pair.logits
    return Pair([*mu_S, *[mu_tail / size] * size], [*logits_S, *[logit_tail - log(mpf(size))] * size], pair.k)


def certify(claims: Claims, dps: int, seed: int) -> Certificate:
    def compare(check: Comparison, pair: Pair) -> None:
        m, size = len(pair.mu) - 1, (1, 2, 3, 8)[check.cases // 2 % 4]
        flat = flat_pair(pair, size)
        claimed = evaluate(claims["direction"], {**retained(flat, m), "n": m + size})
        merged = merge_tail(flat.mu, m)
        measured = check.along(flat, flat.step, lambda policy: forward_kl(merged, merge_tail(policy, m)))
        check.equal(claimed, measured, "uniform slope, reduced KL")
        measured = check.along(flat, flat.step, partial(forward_kl, flat.mu))
        check.equal(claimed, measured, "uniform slope, full KL")

    pairs = (p for m in (1, 2, 4, 7) for p in random_pairs(seed + m, 8, (m + 1,), first=m))
    return certificate(dps, pairs, compare)


THEOREM = register(
    Theorem(
        name="uniform_tail",
        title="Uniform tail",
        statement=(
            r"If the tail mass of $\pi$ is spread evenly over the $n - m$ unseen tokens, the reduced forward KL "
            r"has the slope below; if that of $\mu$ is too, so has the full one, and the two are equal for every "
            r"f-divergence. It is theorem reduced_tail with $c_2 = \pi_T^2 / (n - m)$."
        ),
        source="arXiv 2607.10848, Eq. 11",
        mark="S",
        assumptions=tails.ASSUMPTIONS,
        claims=(
            Claim(
                "direction",
                r"d \tilde{D} / dc",
                (pi[k] - mu[k]) + total(pi[i] * (mu[i] - pi[i]), i, RETAINED) + pi_T * (mu_T - pi_T) / (n - m),
            ),
        ),
        prover=prove,
        certifier=certify,
    )
)
