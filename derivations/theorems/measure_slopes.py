"""The slope along the step for every measure of the catalogue, split like that of the forward KL."""

from __future__ import annotations

from functools import lru_cache, partial

from sympy import Expr, Integer, log, sign, sqrt

from derivations import measures, setting
from derivations.numeric import DIVERGENCES, GENTLE, Certificate, Comparison, Pair, certificate, evaluate, random_pairs
from derivations.proof import Proof, Step
from derivations.setting import FULL, c, i, k, mu, pi
from derivations.sums import total
from derivations.theorem import Claim, Claims, Theorem, register

OTHERS = tuple(name for name in measures.NAMES if name != "forward_kl")  # theorem local_global_split has that one


def _sum(term: Expr) -> Expr:
    return total(term, i, FULL)


S2 = _sum(pi[i] ** 2)
R = _sum(pi[i] * log(pi[i] / mu[i]))  # KL(pi || mu)
SIGMA = _sum(pi[i] * sign(pi[i] - mu[i]))
Q = _sum(pi[i] * log(2 * pi[i] / (mu[i] + pi[i])))  # KL of pi to the midpoint
BC = _sum(sqrt(mu[i] * pi[i]))
X = _sum((pi[i] - mu[i]) ** 2 / mu[i])
Y = _sum((pi[i] - mu[i]) ** 2 / pi[i])
B = _sum(pi[i] * (pi[i] - mu[i]))

LOCAL: dict[str, Expr] = {
    "reverse_kl": pi[k] * (log(pi[k] / mu[k]) - R),
    "tv": pi[k] * (sign(pi[k] - mu[k]) - SIGMA) / 2,
    "jeffreys": pi[k] - mu[k] + pi[k] * (log(pi[k] / mu[k]) - R),
    "js": pi[k] * (log(2 * pi[k] / (mu[k] + pi[k])) - Q) / 2,
    "hellinger2": (BC * pi[k] - sqrt(mu[k] * pi[k])) / 2,
    "chi2_pearson": 2 * pi[k] * (pi[k] / mu[k] - 1 - X),
    "chi2_neyman": pi[k] * (1 + Y - mu[k] ** 2 / pi[k] ** 2),
    "l2": pi[k] * (pi[k] - mu[k] - B),
}
GLOBAL: dict[str, Expr] = {
    "reverse_kl": R * S2 - _sum(pi[i] ** 2 * log(pi[i] / mu[i])),
    "tv": (SIGMA * S2 - _sum(pi[i] ** 2 * sign(pi[i] - mu[i]))) / 2,
    "jeffreys": _sum(pi[i] * (mu[i] - pi[i])) + R * S2 - _sum(pi[i] ** 2 * log(pi[i] / mu[i])),
    "js": (Q * S2 - _sum(pi[i] ** 2 * log(2 * pi[i] / (mu[i] + pi[i])))) / 2,
    "hellinger2": (_sum(sqrt(mu[i]) * pi[i] ** (Integer(3) / 2)) - BC * S2) / 2,
    "chi2_pearson": 2 * (1 + X) * S2 - 2 * _sum(pi[i] ** 3 / mu[i]),
    "chi2_neyman": _sum(mu[i] ** 2) - (1 + Y) * S2,
    "l2": B * S2 - _sum(pi[i] ** 2 * (pi[i] - mu[i])),
}


@lru_cache(maxsize=64)
def _moved(term: measures.Term, direction: setting.Table) -> Expr:
    return measures.over_vocabulary(term, setting.along(direction))


def prove(claims: Claims) -> list[Step]:
    proof = Proof(setting.FACTS)
    for name in OTHERS:
        for part, direction_name, direction in setting.PARTS:
            divergence = _moved(measures.term(name), direction)
            slope = proof.differentiate(
                f"{name}, {part}: differentiate along {direction_name}", divergence, c, Integer(0)
            )
            proof.equal(f"{name}: the {part} term", slope, claims[f"{name}, {part}"])
    return proof.steps


def certify(claims: Claims, dps: int, seed: int) -> Certificate:
    def compare(check: Comparison, pair: Pair) -> None:
        known = {"mu": pair.mu, "pi": pair.pi, "k": pair.k, "n": len(pair.mu)}
        directions = {"local": pair.axis(pair.k), "global": [-p for p in pair.pi]}
        for name in OTHERS:
            for part, direction in directions.items():
                measured = check.along(pair, direction, partial(DIVERGENCES[name], pair.mu))
                check.equal(evaluate(claims[f"{name}, {part}"], known), measured, f"{name}, {part} term")

    return certificate(dps, random_pairs(seed, 8, (3, 2, 5), widths=GENTLE), compare)


THEOREM = register(
    Theorem(
        name="measure_slopes",
        title="Slope of every measure along the step",
        statement=(
            r"For each divergence of the catalogue the slope along $e_k - \pi$ is the sum of the two terms below: the "
            r"local one, from raising the sampled logit alone, and the global one, from lowering every logit by its "
            r"probability. The first factors are named after their values: KL of $\pi$ to $\mu$ and to the midpoint, "
            r"Bhattacharyya coefficient, the two chi-squared values."
        ),
        source="own derivation; TV in arXiv 2607.10848, Appendix D",
        mark="N",
        assumptions=(*setting.ASSUMPTIONS, r"for TV: no $\pi_i$ equals $\mu_i$, where it has a kink"),
        claims=tuple(
            Claim(f"{name}, {part}", rf"\text{{{name.replace('_', ' ')}, {part}}}", table[name])
            for name in OTHERS
            for part, table in (("local", LOCAL), ("global", GLOBAL))
        ),
        prover=prove,
        certifier=certify,
    )
)
