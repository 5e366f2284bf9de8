"""The exact change of the reduced forward KL for a step of any size, where the tail moves as one class."""

from __future__ import annotations

from mpmath import mpf
from sympy import Expr, Integer, KroneckerDelta, Symbol, exp, log

from derivations import measures, tails
from derivations.numeric import (
    Certificate,
    Comparison,
    Pair,
    certificate,
    evaluate,
    forward_kl,
    merge_tail,
    moved,
    random_pairs,
    retained,
)
from derivations.proof import Proof, Step
from derivations.setting import RETAINED, c, i, k, mu, pi
from derivations.sums import total
from derivations.tails import COLLISION, c2, mu_T, pi_T
from derivations.theorem import Claim, Claims, Theorem, register
from derivations.theorems import reduced_tail
from derivations.theorems.finite_step import SIZES
from derivations.theorems.uniform_tail import flat_pair

rate = Symbol("gamma", positive=True)  # c2 / pi_T: by how much the tail's logit falls per unit of c


def prove(claims: Claims) -> list[Step]:
    proof = Proof(tails.FACTS)
    change = claims["change"]
    for name, rule, (policy, tail) in (
        ("one logit for the whole tail", "aggregated", tails.one_logit_tail()),
        ("flat tail", "uniform", tails.flat_tail()),
    ):
        divergence = measures.over_support(measures.forward_kl, policy, mu_T, tail)
        slope = proof.differentiate(f"{name}: differentiate the reduced KL along the step, at any $c$", divergence, c)
        here = change.xreplace({rate: COLLISION[rule] / pi_T})
        claimed = proof.differentiate(f"{name}: and the claim with $\\gamma = c_2 / \\pi_T$ of this rule", here, c)
        proof.equal(f"{name}: they agree for every $c$", slope, claimed)
    any_tail = change.xreplace({rate: c2 / pi_T})
    start = proof.differentiate(
        r"any tail, $\gamma = c_2 / \pi_T$: the claim's slope at the start", any_tail, c, Integer(0)
    )
    proof.equal("it is the exact slope of theorem reduced_tail", start, reduced_tail.THEOREM.claim("direction"))
    proof.equal("both start at zero", change.xreplace({c: Integer(0)}), Integer(0))
    return proof.steps


def certify(claims: Claims, dps: int, seed: int) -> Certificate:
    def compare(check: Comparison, pair: Pair) -> None:
        m, size = len(pair.mu) - 1, (1, 2, 3, 8)[check.cases // 10 % 4]
        flat = flat_pair(pair, size)
        merged = merge_tail(flat.mu, m)
        for state, tokens in ((pair, 1), (flat, size)):
            known = {**retained(state, m), "gamma": sum(state.pi[m:]) / tokens}
            before = forward_kl(merged, merge_tail(state.pi, m))
            for step in map(mpf, SIZES):
                after = forward_kl(merged, merge_tail(moved(state.logits, state.step, step), m))
                check.equal(evaluate(claims["change"], {**known, "c": step}), after - before, f"change, step {step}")

    pairs = (p for m in (1, 2, 4) for p in random_pairs(seed + m, 8, (m + 1,), first=m))
    return certificate(dps, pairs, compare)


def _change() -> Expr:
    grown = total(pi[i] * exp(c * (KroneckerDelta(i, k) - pi[i])), i, RETAINED) + pi_T * exp(-c * rate)
    return log(grown) - c * (mu[k] - total(mu[i] * pi[i], i, RETAINED) - mu_T * rate)


THEOREM = register(
    Theorem(
        name="finite_step_topk",
        title="Finite steps on a Top-K record",
        statement=(
            r"If the logit of the tail falls by $\gamma c$, a step of size $c$ changes the reduced forward KL by the "
            r"amount below. With $\gamma = \pi_T$ this is exact for a tail of one logit, with $\gamma = \pi_T/(n-m)$ "
            r"for a flat tail. For other tails $\gamma = c_2 / \pi_T$ gives the right slope at $c = 0$."
        ),
        source="own derivation",
        mark="N",
        assumptions=tails.ASSUMPTIONS,
        claims=(Claim("change", r"\Delta \tilde{D}", _change()),),
        prover=prove,
        certifier=certify,
    )
)
