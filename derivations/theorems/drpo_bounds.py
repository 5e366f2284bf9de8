"""The range of DRPO's weight."""

from __future__ import annotations

from mpmath import mpf
from sympy import Integer, Rational, Symbol

from derivations import objectives, setting
from derivations.cases import CASES, in_case, shift
from derivations.numeric import Certificate, Comparison, Pair, certificate, evaluate, random_pairs
from derivations.objectives import delta, r
from derivations.proof import Proof, Step
from derivations.setting import A, k, mu, pi
from derivations.theorem import Claim, Claims, Theorem, register
from derivations.theorems import drpo_coefficient

RELEASED = Rational(25, 2)  # the value in the released script (arXiv 2606.09821, sec. 4 [F])


def prove(claims: Claims) -> list[Step]:
    proof = Proof(setting.FACTS)
    slope = proof.differentiate(
        r"the weight is $(dJ/dr) / A$; below, $t = |\pi_k - \mu_k| < 1$",
        objectives.drpo(r, A, mu[k], delta),
        r,
    )
    weight = slope.xreplace({r: pi[k] / mu[k]}) / A
    smaller, rest = Symbol("x", positive=True), Symbol("y", nonnegative=True)
    gap = {shift: 1 - smaller - rest}  # |pi_k - mu_k| = t = 1 - x - y, x = min(pi_k, mu_k) > 0, y = 1 - max >= 0
    for case in CASES:
        here = proof.facts.normal(in_case(weight, case))
        proof.at_least(f"{case.name}: $w$ is not below", here, claims["lowest"], using=gap)
        proof.at_least(f"{case.name}: $w$ is not above", claims["highest"], here, using=gap)
        if case.moved == shift:
            end = "lowest" if case.advantage.is_positive else "highest"
            proof.equal(
                f"{case.name}: approached as $\\mu_k \\to 0$, $\\pi_k \\to 1$",
                here.xreplace({shift: Integer(1)}),
                claims[end],
            )
    released = {delta: RELEASED}
    proof.equal(
        r"with the released $\delta = 12.5$: lower end", claims["lowest"].xreplace(released), claims["lowest at 12.5"]
    )
    proof.equal("upper end", claims["highest"].xreplace(released), claims["highest at 12.5"])
    room = Symbol("x", positive=True)
    proof.greater(r"for any $\delta = 1 + x$ the weight stays positive: no token is pulled back and none is dropped",
                  claims["lowest"].xreplace({delta: 1 + room}), Integer(0))  # fmt: skip
    return proof.steps


def certify(claims: Claims, dps: int, seed: int) -> Certificate:
    edge = mpf(10) ** (-(dps // 5))

    def compare_one(check: Comparison, pair: Pair, advantage: mpf, radius: mpf) -> None:
        def weight(pi_k: mpf, mu_k: mpf, delta: mpf = radius) -> mpf:
            return drpo_coefficient.measured_weight(check, pi_k, mu_k, advantage, delta)

        low, high = (evaluate(claims[label], {"delta": radius}) for label in ("lowest", "highest"))
        w = weight(pair.pi[pair.k], pair.mu[pair.k])
        check.at_most(low, w, "lower bound")
        check.at_most(w, high, "upper bound")
        for end, label in ((min, "lowest"), (max, "highest")):
            extremes = (weight(1 - tiny, tiny, mpf(25) / 2) for tiny in (edge, 1 - edge))
            claimed = evaluate(claims[f"{label} at 12.5"], {})
            check.at_most(abs(claimed - end(extremes)), edge, f"{label} weight at 12.5, approached")
        end = low if advantage > 0 else high
        check.at_most(abs(weight(1 - edge, edge) - end), 3 * edge / radius, "the bound is approached")

    def compare(check: Comparison, pair: Pair) -> None:
        for advantage, radius in drpo_coefficient.tried():
            compare_one(check, pair, advantage, radius)

    return certificate(dps, random_pairs(seed, 8, (2, 4)), compare)


THEOREM = register(
    Theorem(
        name="drpo_bounds",
        title="DRPO: range of the weight",
        statement=(
            r"The weight of theorem drpo_coefficient lies between the two values below, because $|\pi_k - \mu_k|$ is "
            r"less than 1, and comes as close to both as one likes. It can be negative, that is pull back, only if "
            r"$\delta$ is below 1. With the released $\delta = 12.5$ it stays between 0.92 and 1.08: no token is "
            r"pulled back, the edge $|\pi_k - \mu_k| = \delta$ is farther than two probabilities can differ, and the "
            r"method is an unmasked policy gradient whose weights differ from 1 by at most 8 per cent."
        ),
        source="arXiv 2606.09821, Eq. 9 and Table 1",
        mark="F",
        assumptions=(r"$0 < \mu_k < 1$, $0 < \pi_k < 1$, $\delta > 0$, $A \neq 0$",),
        claims=(
            Claim("lowest", r"\inf w", 1 - 1 / delta),
            Claim("highest", r"\sup w", 1 + 1 / delta),
            Claim("lowest at 12.5", r"\inf w\ (\delta = 12.5)", Rational(23, 25)),
            Claim("highest at 12.5", r"\sup w\ (\delta = 12.5)", Rational(27, 25)),
        ),
        prover=prove,
        certifier=certify,
    )
)
