"""Where the ratio criterion and the predicted direction disagree, for the forward KL."""

from __future__ import annotations

from functools import partial

from mpmath import mpf, sign
from sympy import Integer, Symbol

from derivations import measures, setting
from derivations.numeric import Certificate, Comparison, Pair, certificate, evaluate, forward_kl, random_pairs
from derivations.proof import Proof, Step
from derivations.setting import FULL, c, i, k, mu, pi
from derivations.sums import total
from derivations.theorem import Claim, Claims, Theorem, register


def prove(claims: Claims) -> list[Step]:
    proof = Proof(setting.FACTS)
    divergence = measures.over_vocabulary(measures.forward_kl, setting.along(setting.step))
    slope = proof.differentiate(r"differentiate $\mathrm{KL}(\mu\|\pi)$ along the step", divergence, c, Integer(0))
    moved, shift, far = Symbol("x", real=True), Symbol("s", positive=True), Symbol("t", positive=True)
    proof.equal(r"with $x = \pi_k - \mu_k$ it is $x - b$", slope.xreplace({pi[k]: mu[k] + moved}), moved - claims["b"])
    b = Symbol("b", real=True)
    direction = moved - b
    for side in (1, -1):
        name = "$b > 0$" if side > 0 else "$b < 0$"
        between = {moved: side * shift, b: side * (shift + far)}
        proof.greater(f"{name}, $x$ between 0 and $b$: slope and $x$ have opposite signs",
                      Integer(0), (direction * moved).xreplace(between))  # fmt: skip
        for place, case in (
            ("beyond $b$", {moved: side * (shift + far), b: side * shift}),
            ("on the other side of 0", {moved: -side * shift, b: side * far}),
        ):
            proof.greater(f"{name}, $x$ {place}: they agree", (direction * moved).xreplace(case), Integer(0))
    proof.greater("$b = 0$: they agree", (direction * moved).xreplace({b: Integer(0), moved: shift}), Integer(0))
    return proof.steps


def certify(claims: Claims, dps: int, seed: int) -> Certificate:
    def compare(check: Comparison, pair: Pair) -> None:
        kl = partial(forward_kl, pair.mu)
        for token in range(len(pair.mu)):
            state = Pair(pair.mu, pair.logits, token)
            known = {"mu": pair.mu, "pi": pair.pi, "k": token, "n": len(pair.mu)}
            b, x = evaluate(claims["b"], known), pair.pi[token] - pair.mu[token]
            slope = check.along(state, state.step, kl)
            check.equal(x - b, slope, "slope")
            between = min(mpf(0), b) < x < max(mpf(0), b)
            check.equal(sign(slope), -sign(x) if between else sign(x), "sign of the slope")

    return certificate(dps, random_pairs(seed, 8, (2, 3, 6)), compare)


THEOREM = register(
    Theorem(
        name="disagreement",
        title="Where ratio and prediction disagree",
        statement=(
            r"For the forward KL the ratio criterion, the sign of $\pi_k - \mu_k$, and the predicted direction "
            r"disagree exactly where $\pi_k - \mu_k$ lies strictly between 0 and $b$ below. If $\pi$ is the sharper "
            r"policy in the sense $b > 0$, the ratio criterion masks too much where $A > 0$ and too little where "
            r"$A < 0$; if $b < 0$ the other way round."
        ),
        source="own derivation",
        mark="N",
        assumptions=(*setting.ASSUMPTIONS, r"ties ($\pi_k = \mu_k$, or slope zero) are left out"),
        claims=(Claim("b", r"b", total(pi[i] ** 2, i, FULL) - total(pi[i] * mu[i], i, FULL)),),
        prover=prove,
        certifier=certify,
    )
)
