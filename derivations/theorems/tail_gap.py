"""Eq. 12: how far the two tail rules are apart."""

from __future__ import annotations

from functools import partial

from mpmath import mpf
from sympy import Abs, Integer, Symbol, limit, oo

from derivations import tails
from derivations.numeric import Certificate, Comparison, Pair, certificate, evaluate, forward_kl, random_pairs, retained
from derivations.proof import Proof, Step
from derivations.setting import m, n
from derivations.tails import mu_T, pi_T
from derivations.theorem import Claim, Claims, Theorem, register
from derivations.theorems import aggregated_tail, uniform_tail


def prove(claims: Claims) -> list[Step]:
    proof = Proof(tails.FACTS)
    gap = proof.equal(
        "subtract the two derivatives; the retained part cancels",
        aggregated_tail.slope(proof) - uniform_tail.slope(proof),
        claims["gap"],
    )
    further = Symbol("p", integer=True, nonnegative=True)
    shift = Symbol("t", positive=True)
    for name, moved_by in ((">", -shift), ("<", shift), ("=", Integer(0))):
        case = {mu_T: pi_T + moved_by}
        size = gap.xreplace({n: m + 1 + further}).xreplace(case)
        bound = claims["largest"].xreplace(case)
        case_name = rf"$\pi_T {name} \mu_T$, $n - m = 1 + p$"
        proof.at_least(f"{case_name}: the bound holds", bound, Abs(size))
        proof.equal(f"{case_name}: it is reached in the limit of many unseen tokens",
                    limit(Abs(size), further, oo), bound)  # fmt: skip
    return proof.steps


def certify(claims: Claims, dps: int, seed: int) -> Certificate:
    def compare(check: Comparison, pair: Pair) -> None:
        def gap(size: int) -> mpf:
            # Equal tail logits move together, each by -c pi_T / size, so their sum is one class however many they are.
            flat = [*pair.step[:-1], -pair.pi[-1] / size]
            kl = partial(forward_kl, pair.mu)
            return check.along(pair, pair.step, kl) - check.along(pair, flat, kl)

        m = len(pair.mu) - 1
        known = retained(pair, m)
        bound = evaluate(claims["largest"], known)
        for size in (1, 2, 16, 150_000):
            measured = gap(size)
            check.equal(evaluate(claims["gap"], {**known, "n": m + size}), measured, "gap")
            check.at_most(abs(measured), bound, "bound of the gap")
        check.equal(bound, abs(gap(10**dps)), "gap at 10^digits unseen tokens")

    pairs = (p for m in (1, 2, 3, 6) for p in random_pairs(seed + m, 8, (m + 1,), first=m))
    return certificate(dps, pairs, compare)


THEOREM = register(
    Theorem(
        name="tail_gap",
        title="Gap between the two tail rules",
        statement=(
            r"The two rules differ by the amount below, aggregated minus uniform: nothing for a tail of one token, "
            r"never more than $\pi_T |\mu_T - \pi_T|$ in size, and as close to that as one likes for many unseen "
            r"tokens."
        ),
        source="arXiv 2607.10848, Eq. 12",
        mark="I",
        assumptions=tails.ASSUMPTIONS,
        claims=(
            Claim("gap", r"\text{gap}", pi_T * (mu_T - pi_T) * (1 - 1 / (n - m))),
            Claim("largest", r"\sup_{n} |\text{gap}|", pi_T * Abs(mu_T - pi_T)),
        ),
        prover=prove,
        certifier=certify,
    )
)
