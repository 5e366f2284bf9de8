"""Eq. 10: the tail as one token."""

from __future__ import annotations

from functools import partial

from sympy import Expr, Integer

from derivations import measures, tails
from derivations.numeric import Certificate, Comparison, Pair, certificate, evaluate, forward_kl, random_pairs, retained
from derivations.proof import Proof, Step
from derivations.setting import RETAINED, c, i, k, mu, pi
from derivations.sums import total
from derivations.tails import COLLISION, c2, mu_T, pi_T
from derivations.theorem import Claim, Claims, Theorem, register
from derivations.theorems import reduced_tail


def slope(proof: Proof) -> Expr:
    """Slope of the reduced forward KL when the tail moves as one logit, by differentiation."""
    policy, tail = tails.one_logit_tail()
    divergence = measures.over_support(measures.forward_kl, policy, mu_T, tail)
    return proof.differentiate("one logit for the whole tail: differentiate", divergence, c, Integer(0))


def prove(claims: Claims) -> list[Step]:
    proof = Proof(tails.FACTS)
    proof.equal("collect retained and tail terms", slope(proof), claims["direction"])
    general = reduced_tail.THEOREM.claim("direction")
    proof.equal(
        r"the same from theorem reduced_tail: a tail of one token has $c_2 = \pi_T^2$",
        general.xreplace({c2: COLLISION["aggregated"]}),
        claims["direction"],
    )
    return proof.steps


def certify(claims: Claims, dps: int, seed: int) -> Certificate:
    def compare(check: Comparison, pair: Pair) -> None:
        # Here the last of m + 1 classes is the tail: one logit.
        measured = check.along(pair, pair.step, partial(forward_kl, pair.mu))
        known = retained(pair, len(pair.mu) - 1)
        check.equal(evaluate(claims["direction"], known), measured, "aggregated slope")

    pairs = (p for m in (1, 2, 4, 9) for p in random_pairs(seed + m, 12, (m + 1,), first=m))
    return certificate(dps, pairs, compare)


THEOREM = register(
    Theorem(
        name="aggregated_tail",
        title="Aggregated tail",
        statement=(
            r"If the tail is taken for one token, that is for one logit of an $(m+1)$-way softmax, the reduced forward "
            r"KL has the slope below. It is theorem reduced_tail with $c_2 = \pi_T^2$."
        ),
        source="arXiv 2607.10848, Eq. 10",
        mark="S",
        assumptions=tails.ASSUMPTIONS,
        claims=(
            Claim(
                "direction",
                r"d \tilde{D} / dc",
                (pi[k] - mu[k]) + total(pi[i] * (mu[i] - pi[i]), i, RETAINED) + pi_T * (mu_T - pi_T),
            ),
        ),
        prover=prove,
        certifier=certify,
    )
)
