"""How one policy-gradient step on one sampled token moves a softmax policy."""

from __future__ import annotations

from operator import itemgetter

import sympy
from mpmath import log
from sympy import Integer, KroneckerDelta

from derivations import setting
from derivations.numeric import Certificate, Comparison, Pair, certificate, evaluate, random_pairs
from derivations.proof import Proof, Step
from derivations.setting import FULL, A, c, i, j, k, mu, pi, z
from derivations.sums import total
from derivations.theorem import Claim, Claims, Theorem, register


def prove(claims: Claims) -> list[Step]:
    proof = Proof(setting.FACTS)
    free = setting.softmax(lambda token: z[token])
    proof.equal(
        "a policy is the softmax of its log-probabilities, whatever constant $a$ is added to all of them",
        setting.at_pi(free(i)),
        pi[i],
    )
    slope = proof.differentiate("differentiate log softmax$(z)_k$ in one logit", sympy.log(free(k)), z[j])
    gradient = proof.equal(r"written in probabilities, at $z = \log \pi + a$", setting.at_pi(slope), claims["gradient"])
    surrogate = proof.differentiate(
        r"differentiate the surrogate $r A$, $r = \pi_k / \mu_k$", A * free(k) / mu[k], z[j]
    )
    proof.equal(
        r"so gradient ascent at rate $\eta$ moves the logits by $c (e_k - \pi)$, $c = \eta A r$",
        setting.at_pi(surrogate),
        A * pi[k] / mu[k] * gradient,
    )
    proof.equal("this is the direction that all theorems step along", setting.step(j), gradient)
    motion = proof.differentiate(
        "differentiate the probability of token $i$ along that direction", setting.along(setting.step)(i), c, Integer(0)
    )
    proof.equal(r"collect $\pi_i$", motion, claims["motion"])
    return proof.steps


def certify(claims: Claims, dps: int, seed: int) -> Certificate:
    def compare(check: Comparison, pair: Pair) -> None:
        for token in range(len(pair.mu)):
            known = {"pi": pair.pi, "k": pair.k, "n": len(pair.mu), "i": token, "j": token}
            measured = check.along(pair, pair.axis(token), lambda policy: log(policy[pair.k]))
            check.equal(evaluate(claims["gradient"], known), measured, "d log pi_k / dz_j")
            measured = check.along(pair, pair.step, itemgetter(token))
            check.equal(evaluate(claims["motion"], known), measured, "d pi_i / dc")

    return certificate(dps, random_pairs(seed, 4, (2, 3, 7)), compare)


THEOREM = register(
    Theorem(
        name="softmax_step",
        title="One policy-gradient step on one token",
        statement=(
            r"The gradient of the surrogate $r A$, $r = \pi_k / \mu_k$, in the logits is $A r (e_k - \pi)$. A step of "
            r"size $c$ along $e_k - \pi$ changes every probability, not only that of the sampled token $k$."
        ),
        source="own derivation; used in arXiv 2607.10848, sec. 3.1",
        mark="N",
        assumptions=setting.ASSUMPTIONS,
        claims=(
            Claim("gradient", r"\partial \log \pi_k / \partial z_j", KroneckerDelta(j, k) - pi[j]),
            Claim(
                "motion",
                r"d \pi_i / dc",
                pi[i] * (KroneckerDelta(i, k) - pi[i] - pi[k] + total(pi[j] ** 2, j, FULL)),
            ),
        ),
        prover=prove,
        certifier=certify,
    )
)
