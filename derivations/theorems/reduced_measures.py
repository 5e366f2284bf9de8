"""The exact slope of every reduced divergence: how far it is from that of an (m + 1)-way softmax."""

from __future__ import annotations

from functools import lru_cache, partial

from mpmath import fsum
from mpmath import log as mp_log
from sympy import Expr, Integer, log, sign, sqrt

from derivations import measures, tails
from derivations.numeric import (
    DIVERGENCES,
    GENTLE,
    Certificate,
    Comparison,
    Pair,
    certificate,
    evaluate,
    merge_tail,
    of_merged,
    random_pairs,
    retained,
)
from derivations.proof import Proof, Step
from derivations.setting import c
from derivations.tails import c2, mu_T, on_classes, pi_T
from derivations.theorem import Claim, Claims, Theorem, register
from derivations.theorems import local_global_split, measure_slopes
from derivations.theorems.measure_slopes import BC, SIGMA, B, Q, R, X, Y

#: g_T - mean of g under pi, g the slopes of the divergence in its m + 1 probabilities: d D / d log(pi_T) / pi_T.
TAIL: dict[str, Expr] = {
    "forward_kl": 1 - mu_T / pi_T,
    "reverse_kl": log(pi_T / mu_T) - on_classes(R),
    "tv": (sign(pi_T - mu_T) - on_classes(SIGMA)) / 2,
    "jeffreys": 1 - mu_T / pi_T + log(pi_T / mu_T) - on_classes(R),
    "js": (log(2 * pi_T / (mu_T + pi_T)) - on_classes(Q)) / 2,
    "hellinger2": (on_classes(BC) - sqrt(mu_T / pi_T)) / 2,
    "chi2_pearson": 2 * (pi_T / mu_T - 1 - on_classes(X)),
    "chi2_neyman": 1 + on_classes(Y) - mu_T**2 / pi_T**2,
    "l2": pi_T - mu_T - on_classes(B),
}


@lru_cache(maxsize=32)
def full_slope(name: str) -> Expr:
    """Local and global term over the whole vocabulary, from the theorems that prove them."""
    if name == "forward_kl":
        return local_global_split.THEOREM.claim("local") + local_global_split.THEOREM.claim("global")
    return measure_slopes.THEOREM.claim(f"{name}, local") + measure_slopes.THEOREM.claim(f"{name}, global")


def reduced_slope(name: str, tail: Expr, collision: Expr = c2) -> Expr:
    """Slope of the reduced divergence: the (m + 1)-way softmax's, corrected for a tail that is not one logit."""
    return on_classes(full_slope(name)) + (pi_T**2 - collision) * tail


@lru_cache(maxsize=32)
def _after_step(term: measures.Term) -> Expr:
    policy, tail = tails.exact_tail()
    return measures.over_support(term, policy, mu_T, tail)


def prove(claims: Claims) -> list[Step]:
    proof = Proof(tails.FACTS)
    for name in measures.NAMES:
        divergence = _after_step(measures.term(name))
        slope = proof.differentiate(f"{name}: differentiate the reduced divergence along the true step", divergence, c,
                                    Integer(0))  # fmt: skip
        proof.equal(
            f"{name}: the slope on $m + 1$ classes, corrected by $\\pi_T^2 - c_2$ times the claim",
            slope,
            reduced_slope(name, claims[name]),
        )
    return proof.steps


def certify(claims: Claims, dps: int, seed: int) -> Certificate:
    def compare(check: Comparison, pair: Pair) -> None:
        m = (len(pair.mu) + 1) // 2
        known = {**retained(pair, m), "c2": fsum(p * p for p in pair.pi[m:])}
        merged = merge_tail(pair.mu, m)
        # The (m + 1)-way softmax moves its tail by one logit, so that pi_T e^(-c pi_T) takes the place of the sum.
        one = merge_tail(pair.pi, m)
        classes = Pair(merged, [mp_log(p) for p in one], pair.k)
        for name in measures.NAMES:
            divergence = partial(DIVERGENCES[name], merged)
            exact = check.along(pair, pair.step, of_merged(DIVERGENCES[name], pair.mu, m))
            one_logit = check.along(classes, classes.step, divergence)
            correction = (known["pi_T"] ** 2 - known["c2"]) * evaluate(claims[name], known)
            check.equal(correction, exact - one_logit, f"{name}, correction of the slope")

    sizes = (5, 4, 7)
    pairs = (p for size in sizes for p in random_pairs(seed + size, 8, (size,), (size + 1) // 2, GENTLE))
    return certificate(dps, pairs, compare)


THEOREM = register(
    Theorem(
        name="reduced_measures",
        title="Exact slope of every reduced divergence",
        statement=(
            r"Read the local and the global term of each measure on $m + 1$ classes, the tail being one of them: this "
            r"is the slope for a tail that is one logit. The true tail gives way by $c_2$ in the place of $\pi_T^2$, "
            r"so the exact slope of the reduced divergence adds $\pi_T^2 - c_2$ times the amount below, which is "
            r"the tail's slope minus its mean, $\tilde{g}_T - \sum \pi \tilde{g}$ over the $m + 1$ classes. Every "
            r"tail rule is a value of $c_2$: $\pi_T^2$ (aggregated), $\pi_T^2 / (n - m)$ (uniform), measured "
            r"(collision), 0 (none)."
        ),
        source="own derivation; TV in arXiv 2607.10848, Appendix D",
        mark="N",
        assumptions=(*tails.ASSUMPTIONS, r"for TV: no class has $\pi = \mu$, where it has a kink"),
        claims=tuple(
            Claim(name, rf"\text{{{name.replace('_', ' ')}}}: \tilde{{g}}_T - \text{{mean}}", TAIL[name])
            for name in measures.NAMES
        ),
        prover=prove,
        certifier=certify,
    )
)
