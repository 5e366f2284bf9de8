"""Eq. 7: the slope of the forward KL along the step on the sampled token."""

from __future__ import annotations

from functools import partial

from sympy import Integer

from derivations import measures, setting
from derivations.numeric import Certificate, Comparison, Pair, certificate, evaluate, forward_kl, random_pairs
from derivations.proof import Proof, Step
from derivations.setting import FULL, c, i, k, mu, pi, u
from derivations.sums import total
from derivations.theorem import Claim, Claims, Theorem, register


def prove(claims: Claims) -> list[Step]:
    proof = Proof(setting.FACTS)
    divergence = measures.over_vocabulary(measures.forward_kl, setting.along(setting.arbitrary))
    slope = proof.differentiate(
        r"differentiate $\mathrm{KL}(\mu\|\pi)$ along an arbitrary direction $u$", divergence, c, Integer(0)
    )
    slope = proof.equal(
        r"$\mu$ sums to 1: the slope is the mean of $u$ under $\pi$ minus its mean under $\mu$",
        slope,
        total(pi[i] * u[i], i, FULL) - total(mu[i] * u[i], i, FULL),
    )
    proof.equal(r"put $u = e_k - \pi$", setting.with_direction(slope, setting.step), claims["direction"])
    return proof.steps


def certify(claims: Claims, dps: int, seed: int) -> Certificate:
    def compare(check: Comparison, pair: Pair) -> None:
        measured = check.along(pair, pair.step, partial(forward_kl, pair.mu))
        known = {"mu": pair.mu, "pi": pair.pi, "k": pair.k, "n": len(pair.mu)}
        check.equal(evaluate(claims["direction"], known), measured, "slope of KL(mu || pi)")

    return certificate(dps, random_pairs(seed, 12, (2, 3, 5, 11)), compare)


THEOREM = register(
    Theorem(
        name="predictive_direction",
        title="Slope of the forward KL along the step",
        statement=(
            r"Per unit of $c$, a step on token $k$ changes $\mathrm{KL}(\mu\|\pi)$ at first order by the amount below. "
            r"With $c = \eta A r$ and $\eta, r > 0$, the step moves $\pi$ away from $\mu$ if $A$ times it is positive."
        ),
        source="arXiv 2607.10848, Eq. 7",
        mark="S",
        assumptions=setting.ASSUMPTIONS,
        claims=(
            Claim(
                "direction",
                r"d\,\mathrm{KL}(\mu\|\pi) / dc",
                (pi[k] - mu[k]) + total(pi[i] * (mu[i] - pi[i]), i, FULL),
            ),
        ),
        prover=prove,
        certifier=certify,
    )
)
