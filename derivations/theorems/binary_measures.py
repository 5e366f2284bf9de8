"""Divergences of the sampled token against everything else: here the ratio reads the right direction."""

from __future__ import annotations

from functools import lru_cache

from sympy import Expr, Integer, Symbol, log, sign, sqrt

from derivations import measures, setting
from derivations.convexity import SMOOTH, increasing, slope_in_ratio
from derivations.numeric import DIVERGENCES, GENTLE, Certificate, Comparison, Pair, certificate, evaluate, random_pairs
from derivations.proof import Proof, Step
from derivations.setting import FULL, c, i, k, mu, pi
from derivations.sums import total
from derivations.theorem import Claim, Claims, Theorem, register

S2 = total(pi[i] ** 2, i, FULL)
MOTION = pi[k] * (1 - 2 * pi[k] + S2)
_MU_REST, _PI_REST = 1 - mu[k], 1 - pi[k]

#: d D / d pi_k of the two-class divergence
SLOPES: dict[str, Expr] = {
    "forward_kl": (pi[k] - mu[k]) / (pi[k] * _PI_REST),
    "reverse_kl": log(pi[k] / mu[k]) - log(_PI_REST / _MU_REST),
    "tv": sign(pi[k] - mu[k]),
    "jeffreys": (pi[k] - mu[k]) / (pi[k] * _PI_REST) + log(pi[k] / mu[k]) - log(_PI_REST / _MU_REST),
    "js": (log(2 * pi[k] / (mu[k] + pi[k])) - log(2 * _PI_REST / (2 - mu[k] - pi[k]))) / 2,
    "hellinger2": (sqrt(_MU_REST) / sqrt(_PI_REST) - sqrt(mu[k] / pi[k])) / 2,
    "chi2_pearson": 2 * (pi[k] - mu[k]) / (mu[k] * _MU_REST),
    "chi2_neyman": (_MU_REST / _PI_REST) ** 2 - (mu[k] / pi[k]) ** 2,
    "l2": 2 * (pi[k] - mu[k]),
}


def _outward(proof: Proof, name: str) -> None:
    """The slope in pi_k has the sign of pi_k - mu_k; all four masses are written by the distance t that they moved."""
    token, rest, t = (Symbol(s, positive=True) for s in ("x", "y", "t"))
    up = {"token": (token, token + t), "rest": (rest + t, rest)}
    down = {"token": (token + t, token), "rest": (rest, rest + t)}
    if name in SMOOTH:
        increasing(proof, name, slope_in_ratio(proof, name))
        for case, sign_of_gap in ((up, 1), (down, -1)):
            gap = case["token"][1] / case["token"][0] - case["rest"][1] / case["rest"][0]
            proof.greater(
                f"{name}: so the slope has the sign of the gap between the token's ratio and that of the rest, "
                + ("positive for $r > 1$" if sign_of_gap > 0 else "negative for $r < 1$"),
                sign_of_gap * gap,
                Integer(0),
            )
        return
    before, after = (Symbol(s, positive=True) for s in ("p", "q"))
    share = proof.differentiate(f"{name}: differentiate one class's share", measures.term(name)(before, after), after)
    for case, sign_of_gap in ((up, 1), (down, -1)):
        slopes = [share.xreplace({before: was, after: now}) for was, now in case.values()]
        proof.greater(
            f"{name}, $r {'>' if sign_of_gap > 0 else '<'} 1$: the token's slope minus that of the rest",
            sign_of_gap * (slopes[0] - slopes[1]),
            Integer(0),
        )


@lru_cache(maxsize=32)
def _after_step(term: measures.Term) -> Expr:
    return measures.binary(term, mu[k], setting.along(setting.step)(k))


def prove(claims: Claims) -> list[Step]:
    proof = Proof(setting.FACTS)
    policy = setting.along(setting.step)
    motion = proof.differentiate("differentiate the probability of the sampled token", policy(k), c, Integer(0))
    motion = proof.equal(r"collect $\pi_k$", motion, claims["motion"])
    below, others = Symbol("1-pi_k", positive=True), Symbol("others", nonnegative=True)
    written_apart = motion.xreplace({S2: pi[k] ** 2 + others})
    proof.greater(
        r"it rises: $\sum_i \pi_i^2 = \pi_k^2 + $ others, others $\ge 0$ being squares, and $\pi_k < 1$",
        written_apart.xreplace({pi[k]: 1 - below}) / (1 - below),
        Integer(0),
    )
    for name in measures.NAMES:
        divergence = _after_step(measures.term(name))
        slope = proof.differentiate(f"{name}: differentiate the two-class divergence along the step", divergence, c,
                                    Integer(0))  # fmt: skip
        proof.equal(f"{name}: slope in $\\pi_k$ times the motion of $\\pi_k$", slope, claims[name] * motion)
        _outward(proof, name)
    return proof.steps


def certify(claims: Claims, dps: int, seed: int) -> Certificate:
    def compare(check: Comparison, pair: Pair) -> None:
        known = {"mu": pair.mu, "pi": pair.pi, "k": pair.k, "n": len(pair.mu)}
        motion = check.along(pair, pair.step, lambda policy: policy[pair.k])
        check.equal(evaluate(claims["motion"], known), motion, "motion of pi_k")
        mu_k = pair.mu[pair.k]
        for name in measures.NAMES:
            measured = check.along(
                pair,
                pair.step,
                lambda policy: DIVERGENCES[name]([mu_k, 1 - mu_k], [policy[pair.k], 1 - policy[pair.k]]),  # noqa: B023
            )
            check.equal(evaluate(claims[name], known) * motion, measured, f"{name}, two classes")
            check.at_most(-measured * (pair.pi[pair.k] - mu_k), 0, f"{name}: the ratio is right")

    return certificate(dps, random_pairs(seed, 8, (3, 2, 6), widths=GENTLE), compare)


THEOREM = register(
    Theorem(
        name="binary_measures",
        title="Two classes: the ratio is exact",
        statement=(
            r"A binary divergence sees the sampled token and the rest as one class. Its slope along the step is its "
            r"slope in $\pi_k$, below, times the motion of $\pi_k$, which is always positive. For every measure of the "
            r"catalogue it has the sign of $r - 1$: the direction that PPO and DPPO read off the ratio is exact, and a "
            r"predicted direction changes nothing."
        ),
        source="own derivation; the two-class TV and KL are Eqs. 13 and 14 of arXiv 2602.04879",
        mark="N",
        assumptions=(*setting.ASSUMPTIONS, r"$\mu_k, \pi_k < 1$; for TV $\pi_k \neq \mu_k$, where it has a kink"),
        claims=(
            Claim("motion", r"d \pi_k / dc", MOTION),
            *(Claim(name, rf"\partial D_{{\text{{{name.replace('_', ' ')}}}}} / \partial \pi_k", SLOPES[name])
              for name in measures.NAMES),
        ),
        prover=prove,
        certifier=certify,
    )
)  # fmt: skip
