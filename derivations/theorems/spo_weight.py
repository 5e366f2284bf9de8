"""SPO's weight, from its objective: DRPO's with a radius that shrinks with the token's probability."""

from __future__ import annotations

from mpmath import fabs, mpf
from sympy import Abs, Integer, Symbol, sign

from derivations import objectives, setting
from derivations.cases import CASES, in_case, size
from derivations.numeric import Certificate, Comparison, Pair, certificate, evaluate, random_pairs
from derivations.objectives import delta, eps, r
from derivations.proof import Proof, Step
from derivations.setting import A, k, mu, pi
from derivations.theorem import Claim, Claims, Theorem, register
from derivations.theorems import drpo_coefficient


def prove(claims: Claims) -> list[Step]:
    proof = Proof(setting.FACTS)
    ratio = pi[k] / mu[k]
    slope = proof.differentiate("differentiate the objective of one token in $r$", objectives.spo(r, A, eps), r)
    for case in CASES:
        proof.equal(f"{case.name}: $dJ/dr = A w$",
                    in_case(slope.xreplace({r: ratio}), case), in_case(A * claims["weight"], case))  # fmt: skip
    drpo = drpo_coefficient.THEOREM.claim("weight").xreplace({delta: eps * mu[k]})
    for case in CASES:
        proof.equal(rf"{case.name}: the same is DRPO's weight with $\delta = \epsilon \mu_k$",
                    in_case(drpo, case), in_case(claims["weight"], case))  # fmt: skip
    bend = proof.differentiate("differentiate once more", slope, r)
    for name, advantage in (("$A > 0$", size), ("$A < 0$", -size)):
        sided = {A: advantage}
        proof.greater(f"{name}: the objective is strictly concave", Integer(0), bend.xreplace(sided))
        proof.equal(f"{name}: the slope vanishes at $r^*$",
                    slope.xreplace(sided).xreplace({r: claims["stationary"].xreplace(sided)}), Integer(0))  # fmt: skip
    outward = slope.xreplace({A: size}) / size
    below, room = Symbol("x", positive=True), Symbol("y", positive=True)
    at = {r: (1 - below) / mu[k]}
    proof.equal(
        r"for $A > 0$, $\pi_k = 1 - x$, the weight exceeds its lower end by a positive amount that tends to 0",
        outward.xreplace(at) - claims["lowest"],
        below / (eps * mu[k]),
    )
    fall = proof.differentiate(
        r"that end, $y = \mu_k$, falls without bound as $\mu_k$ does", claims["lowest"].xreplace({mu[k]: room}), room
    )
    proof.greater(r"it increases with $\mu_k$, like $1 / \mu_k^2$", fall, Integer(0))
    return proof.steps


def certify(claims: Claims, dps: int, seed: int) -> Certificate:
    edge = mpf(10) ** (-(dps // 5))

    def slope(check: Comparison, pi_k: mpf, mu_k: mpf, advantage: mpf, radius: mpf) -> mpf:
        def value(h: mpf) -> mpf:  # mu_k J as a function of pi_k: its slope is dJ/dr, at no cost in digits
            ratio = (pi_k + h) / mu_k
            return mu_k * (ratio * advantage - fabs(advantage) * (ratio - 1) ** 2 / (2 * radius))

        return check.slope(value) / advantage

    def compare(check: Comparison, pair: Pair) -> None:
        mu_k, pi_k = pair.mu[pair.k], pair.pi[pair.k]
        for advantage, radius in drpo_coefficient.tried():
            known = {"mu": pair.mu, "pi": pair.pi, "k": pair.k, "epsilon": radius, "A": advantage}
            measured = slope(check, pi_k, mu_k, advantage, radius)
            check.equal(evaluate(claims["weight"], known), measured, "w = (dJ/dr) / A")
            best = evaluate(claims["stationary"], known)
            check.equal(slope(check, best * mu_k, mu_k, advantage, radius), mpf(0), "slope at the stationary ratio")
            if advantage > 0:
                lowest = evaluate(claims["lowest"], known)
                check.at_most(lowest, measured, "lower end")
                near = slope(check, 1 - edge, mu_k, advantage, radius)
                check.at_most(abs(near - lowest), 2 * edge / (radius * mu_k), "lower end approached")

    return certificate(dps, random_pairs(seed, 8, (2, 4), widths=(0.5, 2.0, 3.0, 2.0)), compare)


WEIGHT = 1 - sign(A * (pi[k] / mu[k] - 1)) * Abs(pi[k] / mu[k] - 1) / eps

THEOREM = register(
    Theorem(
        name="spo_weight",
        title="SPO: weight, stationary ratio, and no bound for rare tokens",
        statement=(
            r"The objective of one token is $J = r A - |A| (r - 1)^2 / (2 \epsilon)$; its derivative in $r$ is $A w$ "
            r"with the weight below, which is DRPO's with $\delta = \epsilon \mu_k$. Its maximum is at $r^*$. For "
            r"$A > 0$ the weight can fall to the last value, which has no lower bound as $\mu_k$ tends to 0: rare "
            r"tokens are pulled back without limit, where DRPO's weight stays above $1 - 1/\delta$."
        ),
        source="arXiv 2606.09821, Eq. 5 and Table 1",
        mark="F",
        assumptions=(r"$0 < \mu_k < 1$, $0 < \pi_k < 1$, $\epsilon > 0$, $A \neq 0$",),
        claims=(
            Claim("weight", r"w", WEIGHT),
            Claim("stationary", r"r^*", 1 + sign(A) * eps),
            Claim("lowest", r"\inf_{\pi_k} w", 1 - (1 / mu[k] - 1) / eps),
        ),
        prover=prove,
        certifier=certify,
    )
)
