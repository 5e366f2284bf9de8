"""DRPO's coefficient, from its objective."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from mpmath import fabs, mpf
from sympy import Abs, KroneckerDelta, sign

from derivations import objectives, setting
from derivations.cases import CASES, in_case
from derivations.numeric import Certificate, Comparison, Pair, certificate, evaluate, random_pairs
from derivations.objectives import delta, r
from derivations.proof import Proof, Step
from derivations.setting import A, j, k, mu, pi, z
from derivations.theorem import Claim, Claims, Theorem, register


def prove(claims: Claims) -> list[Step]:
    proof = Proof(setting.FACTS)
    ratio = pi[k] / mu[k]
    in_ratio = proof.differentiate(
        "differentiate the objective of one token in $r$", objectives.drpo(r, A, mu[k], delta), r
    )
    free = setting.softmax(lambda token: z[token])
    objective = objectives.drpo(free(k) / mu[k], A, mu[k], delta)
    in_logit = proof.differentiate(r"differentiate it in one logit, $r$ = softmax$(z)_k / \mu_k$", objective, z[j])
    slope = proof.equal(
        r"chain rule: $dJ/dr$ times $r (e_k - \pi)$",
        setting.at_pi(in_logit),
        in_ratio.xreplace({r: ratio}) * ratio * (KroneckerDelta(j, k) - pi[j]),
    )
    for case in CASES:
        proof.equal(
            f"{case.name}: $dJ/dr = A w$",
            in_case(in_ratio.xreplace({r: ratio}), case),
            in_case(A * claims["weight"], case),
        )
        proof.equal(f"{case.name}: the coefficient", in_case(slope, case), in_case(claims["coefficient"], case))
    return proof.steps


def scaled_objective(pi_k: mpf, mu_k: mpf, advantage: mpf, radius: mpf) -> mpf:
    """mu_k times the objective of one token, in mpmath: with this factor a rare token does not cost digits."""
    ratio = pi_k / mu_k
    return mu_k * (ratio * advantage - fabs(advantage) * mu_k * (ratio - 1) ** 2 / (2 * radius))


def measured_weight(check: Comparison, pi_k: mpf, mu_k: mpf, advantage: mpf, radius: mpf) -> mpf:
    """(dJ/dr) / A by finite differences; mu_k dJ/dpi_k is dJ/dr."""
    return check.slope(lambda h: scaled_objective(pi_k + h, mu_k, advantage, radius)) / advantage


def tried() -> Iterator[tuple[mpf, mpf]]:
    """Advantages of both signs with radii from the papers' range, as (A, delta)."""
    return product((mpf("0.75"), mpf(-2)), (mpf("0.04"), mpf("0.15"), mpf("2.5"), mpf("12.5")))


def certify(claims: Claims, dps: int, seed: int) -> Certificate:
    def compare_one(check: Comparison, pair: Pair, advantage: mpf, radius: mpf) -> None:
        mu_k = pair.mu[pair.k]
        known = {
            "mu": pair.mu, "pi": pair.pi, "k": pair.k, "n": len(pair.mu), "delta": radius, "A": advantage,
        }  # fmt: skip
        measured = measured_weight(check, pair.pi[pair.k], mu_k, advantage, radius)
        check.equal(evaluate(claims["weight"], known), measured, "w = (dJ/dr) / A")
        for token in range(len(pair.mu)):
            measured = check.along(
                pair, pair.axis(token), lambda policy: scaled_objective(policy[pair.k], mu_k, advantage, radius)
            )
            check.equal(mu_k * evaluate(claims["coefficient"], {**known, "j": token}), measured, "mu_k dJ/dz_j")

    def compare(check: Comparison, pair: Pair) -> None:
        for advantage, radius in tried():
            compare_one(check, pair, advantage, radius)

    return certificate(dps, random_pairs(seed, 8, (2, 3, 6)), compare)


WEIGHT = 1 - sign(A * (pi[k] / mu[k] - 1)) * Abs(pi[k] - mu[k]) / delta

THEOREM = register(
    Theorem(
        name="drpo_coefficient",
        title="DRPO: from the objective to the coefficient",
        statement=(
            r"The objective of one token is $J = r A - |A| \mu_k (r - 1)^2 / (2 \delta)$, $r = \pi_k / \mu_k$. Its "
            r"derivative in $r$ is $A w$ with the weight $w$ below, so each token enters the policy gradient as "
            r"$w r A$ times the gradient of its log-probability: outward moves are damped, inward ones amplified."
        ),
        source="arXiv 2606.09821, Eqs. 8 and 9, Table 1",
        mark="F",
        assumptions=(*setting.ASSUMPTIONS, r"$\delta > 0$; $A \neq 0$ where $w$ is read off as $(dJ/dr) / A$"),
        claims=(
            Claim("weight", r"w", WEIGHT),
            Claim(
                "coefficient",
                r"\partial J / \partial z_j",
                A * WEIGHT * pi[k] / mu[k] * (KroneckerDelta(j, k) - pi[j]),
            ),
        ),
        prover=prove,
        certifier=certify,
    )
)
