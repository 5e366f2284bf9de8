"""The exact slope of the divergence that a Top-K mask really measures: retained tokens and the tail as one class."""

from __future__ import annotations

from sympy import Integer

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
from derivations.setting import RETAINED, c, i, k, mu, pi
from derivations.sums import total
from derivations.tails import S2, c2, mu_T, pi_T
from derivations.theorem import Claim, Claims, Theorem, register


def prove(claims: Claims) -> list[Step]:
    proof = Proof(tails.FACTS)
    policy, tail = tails.exact_tail()
    motion = proof.differentiate("differentiate the tail mass along the step", tail, c, Integer(0))
    proof.equal("each tail token gives way in proportion to itself: $c_2$ appears", motion, claims["tail motion"])
    divergence = measures.over_support(measures.forward_kl, policy, mu_T, tail)
    slope = proof.differentiate("differentiate the divergence on $S$ and one tail class", divergence, c, Integer(0))
    proof.equal("collect retained and tail terms", slope, claims["direction"])
    return proof.steps


def certify(claims: Claims, dps: int, seed: int) -> Certificate:
    def compare(check: Comparison, pair: Pair) -> None:
        m = (len(pair.mu) + 1) // 2
        tail = pair.pi[m:]
        known = {**retained(pair, m), "c2": sum(p * p for p in tail)}
        measured = check.along(pair, pair.step, lambda policy: sum(policy[m:]))
        check.equal(evaluate(claims["tail motion"], known), measured, "motion of the tail mass")
        merged = merge_tail(pair.mu, m)
        measured = check.along(pair, pair.step, lambda policy: forward_kl(merged, merge_tail(policy, m)))
        check.equal(evaluate(claims["direction"], known), measured, "slope of the reduced KL")

    sizes = (2, 3, 6, 11)
    pairs = (p for size in sizes for p in random_pairs(seed + size, 8, (size,), first=(size + 1) // 2))
    return certificate(dps, pairs, compare)


THEOREM = register(
    Theorem(
        name="reduced_tail",
        title="Exact slope of the reduced forward KL",
        statement=(
            r"A Top-K mask measures $\tilde{D}$: the forward KL on the retained tokens $S$ and the tail as one class. "
            r"Along the step its exact slope needs one number from the unseen tokens, the collision mass $c_2$ of the "
            r"tail. The rule 'collision' uses the true $c_2$; all other tail rules put a guess in its place."
        ),
        source="own derivation",
        mark="N",
        assumptions=tails.ASSUMPTIONS,
        claims=(
            Claim("tail motion", r"d \pi_T / dc", -c2 - pi_T * (pi[k] - S2)),
            Claim(
                "direction",
                r"d \tilde{D} / dc",
                (pi[k] - mu[k]) + total(pi[i] * (mu[i] - pi[i]), i, RETAINED) + (mu_T - pi_T) * c2 / pi_T,
            ),
        ),
        prover=prove,
        certifier=certify,
    )
)
