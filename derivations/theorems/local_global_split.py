"""Eqs. 8 and 9: the part of the slope that the sampled ratio sees, and the part that it cannot see."""

from __future__ import annotations

from functools import partial

from sympy import Integer, KroneckerDelta

from derivations import measures, setting
from derivations.numeric import Certificate, Comparison, Pair, certificate, evaluate, forward_kl, random_pairs
from derivations.proof import Proof, Step
from derivations.setting import FULL, c, i, k, mu, pi
from derivations.sums import total
from derivations.theorem import Claim, Claims, Theorem, register
from derivations.theorems import predictive_direction


def prove(claims: Claims) -> list[Step]:
    proof = Proof(setting.FACTS)
    parts = {
        "local": ("raise the sampled logit alone, $u = e_k$", lambda token: KroneckerDelta(token, k)),
        "global": (r"lower every logit by its probability, $u = -\pi$", lambda token: -pi[token]),
    }
    for label, (reason, direction) in parts.items():
        divergence = measures.over_vocabulary(measures.forward_kl, setting.along(direction))
        slope = proof.differentiate(f"{label} term: {reason}", divergence, c, Integer(0))
        proof.equal(f"this is the {label} term", slope, claims[label])
    proof.equal(
        r"both together are the slope along $e_k - \pi$",
        claims["local"] + claims["global"],
        predictive_direction.THEOREM.claim("direction"),
    )
    ratio = pi[k] / mu[k]
    proof.equal("the local term is what the importance ratio reads", claims["local"], mu[k] * (ratio - 1))
    return proof.steps


def certify(claims: Claims, dps: int, seed: int) -> Certificate:
    def compare(check: Comparison, pair: Pair) -> None:
        known = {"mu": pair.mu, "pi": pair.pi, "k": pair.k, "n": len(pair.mu)}
        for label, direction in (("local", pair.axis(pair.k)), ("global", [-p for p in pair.pi])):
            measured = check.along(pair, direction, partial(forward_kl, pair.mu))
            check.equal(evaluate(claims[label], known), measured, f"{label} term")

    return certificate(dps, random_pairs(seed, 12, (2, 3, 5, 11)), compare)


THEOREM = register(
    Theorem(
        name="local_global_split",
        title="Local and global part of the slope",
        statement=(
            r"The direction $e_k - \pi$ has two parts. Raising the sampled logit alone gives the local term, "
            r"$\mu_k (r - 1)$ with $r = \pi_k / \mu_k$: its sign is the one that PPO and DPPO read off the ratio. "
            r"Lowering every logit by its probability gives the global term, in which no sampled ratio appears. "
            r"Their sum is the slope of theorem predictive_direction."
        ),
        source="arXiv 2607.10848, Eqs. 8 and 9",
        mark="S",
        assumptions=setting.ASSUMPTIONS,
        claims=(
            Claim("local", r"\text{local term}", pi[k] - mu[k]),
            Claim("global", r"\text{global term}", total(pi[i] * (mu[i] - pi[i]), i, FULL)),
        ),
        prover=prove,
        certifier=certify,
    )
)
