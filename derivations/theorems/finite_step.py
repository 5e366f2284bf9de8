"""What a step of any size does to the forward KL: its exact change, its curvature, and which prediction can fail."""

from __future__ import annotations

from functools import partial

from mpmath import mpf
from sympy import Integer, KroneckerDelta, exp, log

from derivations import measures, setting
from derivations.numeric import Certificate, Comparison, Pair, certificate, evaluate, forward_kl, moved, random_pairs
from derivations.proof import Proof, Step
from derivations.setting import FULL, c, i, k, mu, pi, q, u
from derivations.sums import total
from derivations.theorem import Claim, Claims, Theorem, register
from derivations.theorems import predictive_direction

S2 = total(pi[i] ** 2, i, FULL)
SIZES = ("-3", "-0.3", "0.01", "0.3", "3")


def prove(claims: Claims) -> list[Step]:
    proof = Proof(setting.FACTS)
    divergence = measures.over_vocabulary(measures.forward_kl, setting.along(setting.arbitrary))
    slope = proof.differentiate(
        r"differentiate $\mathrm{KL}(\mu\|\pi)$ along any direction $u$, at any $c$", divergence, c
    )
    normaliser = total(pi[i] * exp(c * u[i]), i, FULL)
    change = log(normaliser) - c * total(mu[i] * u[i], i, FULL)
    exact = proof.differentiate("the change is this function of $c$: the same slope everywhere", change, c)
    proof.equal("slopes agree for every $c$", slope, exact)
    proof.equal("and both start at zero", change.xreplace({c: Integer(0)}), Integer(0))
    proof.equal("put $u = e_k - \\pi$", setting.with_direction(change, setting.step), claims["change"])

    bend = proof.differentiate("differentiate the slope once more", slope, c)
    # p_i = pi_i exp(c u_i) / normaliser is the policy after the step.
    weight = total(pi[q] * exp(c * u[q]), q, FULL)
    mean = total(pi[i] * exp(c * u[i]) * u[i], i, FULL) / normaliser
    deviation = pi[i] * exp(c * u[i]) * (u[i] - mean) ** 2 / weight
    proof.equal(
        "it is the variance of $u$ under the policy at $c$, a sum of squares and so never negative, whatever "
        r"$\mu$: the KL is convex along every direction and lies above its tangent at $c = 0$",
        bend,
        total(deviation, i, FULL),
    )
    at_zero = bend.xreplace({c: Integer(0)})
    proof.equal("at $c = 0$ with $u = e_k - \\pi$", setting.with_direction(at_zero, setting.step), claims["curvature"])
    start = proof.facts.normal(slope.xreplace({c: Integer(0)}))
    proof.equal(
        "the tangent is theorem predictive_direction: the change is at least $c$ times the predicted direction",
        setting.with_direction(start, setting.step),
        predictive_direction.THEOREM.claim("direction"),
    )
    return proof.steps


def certify(claims: Claims, dps: int, seed: int) -> Certificate:
    def compare(check: Comparison, pair: Pair) -> None:
        known = {"mu": pair.mu, "pi": pair.pi, "k": pair.k, "n": len(pair.mu)}
        kl = partial(forward_kl, pair.mu)
        before = kl(pair.pi)
        slope = evaluate(predictive_direction.THEOREM.claim("direction"), known)
        for size in map(mpf, SIZES):
            change = kl(moved(pair.logits, pair.step, size)) - before
            check.equal(evaluate(claims["change"], {**known, "c": size}), change, f"change after a step of {size}")
            check.at_most(size * slope, change, "the KL lies above its tangent")
        measured = check.bend(lambda h: kl(moved(pair.logits, pair.step, h)))
        check.equal(evaluate(claims["curvature"], known), measured, "second difference")

    return certificate(dps, random_pairs(seed, 8, (2, 3, 6)), compare)


THEOREM = register(
    Theorem(
        name="finite_step",
        title="Finite steps and the one-sided error",
        statement=(
            r"A step of size $c$ on token $k$ changes $\mathrm{KL}(\mu\|\pi)$ by exactly the first amount below. Its "
            r"second derivative along the step is a variance under $\pi$, the second amount, independent of $\mu$ and "
            r"never negative. So the change is at least $c$ times the predicted direction: a predicted increase is "
            r"never wrong for a step on one token, only a predicted decrease can fail, by curvature."
        ),
        source="own derivation; the Gaussian counterpart is in arXiv 2606.11025, Appendix E",
        mark="N",
        assumptions=(*setting.ASSUMPTIONS, r"the step moves the logits of this state alone; $c$ is any real number"),
        claims=(
            Claim(
                "change",
                r"\Delta \mathrm{KL}(\mu\|\pi)",
                log(total(pi[i] * exp(c * (KroneckerDelta(i, k) - pi[i])), i, FULL))
                - c * (mu[k] - total(mu[i] * pi[i], i, FULL)),
            ),
            Claim(
                "curvature",
                r"d^2\,\mathrm{KL}(\mu\|\pi) / dc^2",
                pi[k] * (1 - 2 * pi[k]) + total(pi[i] ** 3, i, FULL) - (pi[k] - S2) ** 2,
            ),
        ),
        prover=prove,
        certifier=certify,
    )
)
