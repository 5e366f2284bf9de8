"""Merging the tail can only lose divergence, and how much it loses."""

from __future__ import annotations

from mpmath import mpf
from sympy import Abs, Expr, Integer, Min, Symbol, log, sqrt

from derivations import measures, tails
from derivations.convexity import SMOOTH, increasing, slope_in_ratio, w
from derivations.numeric import (
    DIVERGENCES,
    GENTLE,
    Certificate,
    Comparison,
    Pair,
    certificate,
    evaluate,
    merge_tail,
    random_pairs,
    retained,
)
from derivations.proof import Proof, Step
from derivations.setting import TAIL, i, mu, pi
from derivations.sums import total
from derivations.tails import mu_T, pi_T
from derivations.theorem import Claim, Claims, Theorem, register


def _sum(term: Expr) -> Expr:
    return total(term, i, TAIL)


FORWARD = _sum(mu[i] * log(mu[i] * pi_T / (pi[i] * mu_T)))
REVERSE = _sum(pi[i] * log(pi[i] * mu_T / (mu[i] * pi_T)))
_ROOT = sqrt(sqrt(pi_T / mu_T))
GAPS: dict[str, Expr] = {
    "forward_kl": FORWARD,
    "reverse_kl": REVERSE,
    "tv": Min(mu_T, pi_T) - _sum(Min(mu[i], pi[i])),
    "jeffreys": FORWARD + REVERSE,
    "js": _sum(mu[i] * log(mu[i] * (mu_T + pi_T) / (mu_T * (mu[i] + pi[i])))) / 2
    + _sum(pi[i] * log(pi[i] * (mu_T + pi_T) / (pi_T * (mu[i] + pi[i])))) / 2,
    "hellinger2": _sum((_ROOT * sqrt(mu[i]) - sqrt(pi[i]) / _ROOT) ** 2) / 2,
    "chi2_pearson": _sum((pi[i] - mu[i] * pi_T / mu_T) ** 2 / mu[i]),
    "chi2_neyman": _sum((mu[i] - pi[i] * mu_T / pi_T) ** 2 / pi[i]),
}


def _lost(name: str) -> Expr:
    """Full minus reduced divergence: the retained tokens cancel."""
    term = measures.term(name)
    return _sum(term(mu[i], pi[i])) - term(mu_T, pi_T)


def _by_minimum(expr: Expr) -> Expr:
    """|x - y| = x + y - 2 min(x, y) for the two masses of a class."""

    def distance(argument: Expr) -> Expr:
        first, second = (mu_T, pi_T) if argument.has(mu_T) else (mu[i], pi[i])
        return (
            first + second - 2 * Min(first, second) if argument in (first - second, second - first) else Abs(argument)
        )

    return expr.replace(Abs, distance)


def prove(claims: Claims) -> list[Step]:
    proof = Proof(tails.FACTS)
    for name in SMOOTH:
        proof.equal(f"{name}: what the tail loses as one class", _lost(name), claims[name])
        slope = slope_in_ratio(proof, name)
        increasing(proof, name, slope)
        mean_ratio = pi_T / mu_T
        above = measures.term(name)(mu[i], pi[i]) - mu[i] * (
            measures.term(name)(Integer(1), mean_ratio) + slope.xreplace({w: mean_ratio}) * (pi[i] / mu[i] - mean_ratio)
        )
        proof.equal(
            f"{name}: it is, token by token, the height above the tangent at $w = \\pi_T / \\mu_T$, which a function "
            "with increasing slope does not undercut; all zero exactly if the tail's ratios are equal",
            claims[name],
            _sum(above),
        )
    x, t = Symbol("x", positive=True), Symbol("t", positive=True)
    for name, (first, second) in (("larger", (x, x + t)), ("smaller", (x + t, x))):
        proof.equal(f"tv: half a distance is the mean minus the minimum, $\\pi_i$ {name} than $\\mu_i$",
                    Abs(first - second) / 2, (first + second) / 2 - x)  # fmt: skip
    proof.equal("tv: written with minima", _by_minimum(_lost("tv")), claims["tv"])
    proof.at_least("tv: not negative: each minimum is at most either token's mass, so their sum at most either tail",
                   x + t, Min(x + t, x))  # fmt: skip
    return proof.steps


def certify(claims: Claims, dps: int, seed: int) -> Certificate:
    def compare(check: Comparison, pair: Pair) -> None:
        m = (len(pair.mu) + 1) // 2
        known = {**retained(pair, m), "mu": pair.mu, "pi": pair.pi, "n": len(pair.mu)}
        for name in measures.F_DIVERGENCES:
            divergence = DIVERGENCES[name]
            full = divergence(pair.mu, pair.pi)
            lost = full - divergence(merge_tail(pair.mu, m), merge_tail(pair.pi, m))
            check.equal(evaluate(claims[name], known), lost, f"{name}: full minus reduced")
            check.at_most(mpf(0), lost, f"{name}: lower bound")

    pairs = (p for size in (4, 3, 7) for p in random_pairs(seed + size, 8, (size,), (size + 1) // 2, GENTLE))
    return certificate(dps, pairs, compare)


THEOREM = register(
    Theorem(
        name="reduced_bounds",
        title="Reduced divergences are lower bounds",
        statement=(
            r"For every f-divergence of the catalogue the value on $S$ and one tail class is the full one minus the "
            r"amount below, which is never negative and zero exactly if all tail tokens have one ratio "
            r"$\pi_i / \mu_i$ (for TV: if $\pi - \mu$ has one sign on the tail; its gap is at most "
            r"$\min(\mu_T, \pi_T)$). The squared l2 distance is no f-divergence and no lower bound: equal shifts "
            r"of two tail tokens add up before they are squared (theorem counterexamples)."
        ),
        source="own derivation; the bounds for TV and KL are in arXiv 2602.04879, Appendix B",
        mark="N",
        assumptions=tails.ASSUMPTIONS,
        claims=tuple(
            Claim(name, rf"D - \tilde{{D}}\ (\text{{{name.replace('_', ' ')}}})", GAPS[name])
            for name in measures.F_DIVERGENCES
        ),
        prover=prove,
        certifier=certify,
    )
)
