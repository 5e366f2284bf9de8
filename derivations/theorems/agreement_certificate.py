"""A cheap bound of the global term: where the ratio criterion is certain to be right."""

from __future__ import annotations

from functools import partial

from sympy import Abs, Integer, Symbol

from derivations import measures, setting
from derivations.numeric import Certificate, Comparison, Pair, certificate, evaluate, forward_kl, random_pairs
from derivations.proof import Proof, Step
from derivations.setting import FULL, c, i, k, mu, n, pi
from derivations.sums import total
from derivations.theorem import Claim, Claims, Theorem, register
from derivations.theorems import local_global_split

top, bottom = Symbol("pi_max", positive=True), Symbol("pi_min", positive=True)
TV = total(Abs(pi[i] - mu[i]), i, FULL) / 2


def prove(claims: Claims) -> list[Step]:
    proof = Proof(setting.FACTS)
    divergence = measures.over_vocabulary(measures.forward_kl, setting.along(setting.step))
    slope = proof.differentiate(r"differentiate $\mathrm{KL}(\mu\|\pi)$ along the step", divergence, c, Integer(0))
    middle = (top + bottom) / 2
    centred = total((pi[i] - mu[i]) * (pi[i] - middle), i, FULL)
    proof.equal(r"both policies sum to 1, so any constant may be taken from $\pi_i$ in the global term",
                slope, pi[k] - mu[k] - centred)  # fmt: skip
    t, low, high = Symbol("t", positive=True), Symbol("x", nonnegative=True), Symbol("y", nonnegative=True)
    inside = {pi[i]: bottom + low, top: bottom + low + high}
    for name, moved in ((">", t), ("<", -t)):
        for side in (1, -1):
            bound = Abs(moved) * (top - bottom) / 2 - side * moved * (pi[i] - middle)
            proof.at_least(
                rf"$\pi_i {name} \mu_i$, $\pi_i = \pi_{{min}} + x = \pi_{{max}} - y$: a token's share is at most "
                rf"half of $|\pi_i - \mu_i| (\pi_{{max}} - \pi_{{min}})$, sign {side:+d}",
                bound.xreplace(inside),
                Integer(0),
            )
    proof.equal("summed over the tokens", total(Abs(pi[i] - mu[i]) * (top - bottom) / 2, i, FULL), claims["bound"])
    # Two tokens: pi = (p, q), mu = (p - s, q + s), p + q = 1.
    p, q, s = (Symbol(name, positive=True) for name in "pqs")
    both = local_global_split.THEOREM.claim("global").xreplace({n: Integer(2)}).doit()
    b = both.xreplace({pi[0]: p, pi[1]: q, mu[0]: p - s, mu[1]: q + s})
    proof.equal("two tokens, $\\pi = (p, q)$, $p \\ge q$, $\\mu = (p - s, q + s)$: $b \\le 0$ and the bound is reached",
                claims["bound"].xreplace({2 * TV: 2 * s, top: p, bottom: q}), -b)  # fmt: skip
    return proof.steps


def certify(claims: Claims, dps: int, seed: int) -> Certificate:
    def compare(check: Comparison, pair: Pair) -> None:
        slope = check.along(pair, pair.step, partial(forward_kl, pair.mu))
        b = pair.pi[pair.k] - pair.mu[pair.k] - slope
        known = {
            "mu": pair.mu, "pi": pair.pi, "n": len(pair.mu), "pi_max": max(pair.pi), "pi_min": min(pair.pi),
        }  # fmt: skip
        bound = evaluate(claims["bound"], known)
        check.at_most(abs(b), bound, "bound of the global term")
        if len(pair.mu) == 2:
            check.equal(bound, abs(b), "two tokens reach the bound")

    return certificate(dps, random_pairs(seed, 16, (2, 3, 6)), compare)


THEOREM = register(
    Theorem(
        name="agreement_certificate",
        title="When the ratio is certain to be right",
        statement=(
            r"The global term of the forward KL is never larger in size than the bound below, TV times the spread of "
            r"$\pi$, and reaches it if there are only two tokens. So wherever $|\pi_k - \mu_k|$ exceeds it, the ratio "
            r"criterion and the predicted direction agree."
        ),
        source="own derivation",
        mark="N",
        assumptions=(*setting.ASSUMPTIONS, r"$\pi_{max}$ and $\pi_{min}$ are the largest and smallest $\pi_i$"),
        claims=(Claim("bound", "|b|", TV * (top - bottom), "<="),),
        prover=prove,
        certifier=certify,
    )
)
