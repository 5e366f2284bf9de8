"""The extra width that the interval needs where it is computed from rounded probabilities."""

from __future__ import annotations

import random

from mpmath import fsum, mpf
from sympy import Expr, Integer, Symbol

from derivations.numeric import Certificate, Comparison, Pair, certificate, evaluate, random_pairs
from derivations.proof import Proof, Step
from derivations.setting import RETAINED, i, k, m, mu, n, pi
from derivations.sums import total
from derivations.tails import pi_T
from derivations.theorem import Claim, Claims, Theorem, register
from derivations.theorems import full_interval
from derivations.theorems.full_interval import CAP

eps = Symbol("epsilon", positive=True)
TWICE = 2 * eps + eps**2  # (1 + eps)^2 - 1
SEEN = eps * (pi[k] + mu[k]) + TWICE * total(pi[i] * (mu[i] + pi[i]), i, RETAINED)
SQUARE = 2 * eps * pi_T + eps**2


def _corner(proof: Proof, name: str, error: Expr, first: Symbol, second: Symbol, worst: Expr, largest: Expr) -> None:
    """The error grows with both roundings (or falls with the second), so its extremes are at the corners."""
    above = {s: Symbol(f"1+{s.name}", positive=True) - 1 for s in (first, second)}
    growth = proof.differentiate(f"{name}: differentiate the error in the rounding of $\\pi$", error, first)
    proof.greater(f"{name}: it grows with it, as $1 + \\rho > 0$", growth.xreplace(above), Integer(0))
    proof.equal(f"{name}: so it is largest at a corner", error.xreplace({first: eps, second: worst}), largest)
    opposite = error.xreplace({first: -eps, second: -worst})
    proof.at_least(f"{name}: at the opposite corner it is not larger in size", largest + opposite, Integer(0))


def prove(claims: Claims) -> list[Step]:
    proof = Proof()
    first, second = Symbol("rho", real=True), Symbol("sigma", real=True)
    x, y = Symbol("x", positive=True), Symbol("y", positive=True)
    moved_x, moved_y = x * (1 + first), y * (1 + second)
    _corner(proof, r"$\pi_k - \mu_k$", moved_x - moved_y - (x - y), first, second, -eps, eps * (x + y))
    _corner(proof, r"$\pi_i \mu_i$", moved_x * moved_y - x * y, first, second, eps, TWICE * x * y)
    _corner(proof, r"$\pi_i^2$", moved_x**2 - x**2, first, second, eps, TWICE * x**2)
    parts = eps * (pi[k] + mu[k]) + total(TWICE * pi[i] * mu[i] + TWICE * pi[i] ** 2, i, RETAINED)
    proof.equal("the seen part: one difference, and a product and a square per retained token", parts, claims["seen"])
    square = (pi_T + eps) ** 2 - pi_T**2
    overlap = (pi_T + eps) * (CAP + eps) - pi_T * CAP
    proof.equal(r"lower end: in addition $\pi_T^2$, of a tail that is off by at most $\epsilon$",
                claims["seen"] + square, claims["low"])  # fmt: skip
    proof.equal(r"upper end: in addition the overlap, both factors off by at most $\epsilon$, and a share of $\pi_T^2$",
                claims["seen"] + overlap + square / (n - m), claims["high"])  # fmt: skip
    return proof.steps


def certify(claims: Claims, dps: int, seed: int) -> Certificate:
    rng = random.Random(seed)

    def compare_one(check: Comparison, pair: Pair, radius: mpf) -> None:
        m = (len(pair.mu) + 1) // 2
        size = len(pair.mu) - m
        order = sorted(range(len(pair.mu)), key=lambda token: -pair.mu[token])
        true = Pair([pair.mu[t] for t in order], [pair.logits[t] for t in order], pair.k)
        seen_mu, seen_pi = true.mu[:m], true.pi[:m]
        # What is stored: the true value is within (1 +- radius) of it.
        stored = {
            name: [p / (1 + radius * rng.choice((-1, 1, rng.uniform(-1, 1)))) for p in row]
            for name, row in (("mu", seen_mu), ("pi", seen_pi))
        }
        masses = {f"{name}_T": max(mpf(0), 1 - fsum(row)) for name, row in stored.items()}
        known = {
            **stored,
            **masses,
            "k": pair.k,
            "m": m,
            "n": len(pair.mu),
            "mu_K": stored["mu"][-1],
            "epsilon": radius,
        }
        widths = {label: evaluate(claims[label], known) for label in ("seen", "low", "high")}

        direction = true.pi[pair.k] - true.mu[pair.k] + fsum(q * (p - q) for p, q in zip(true.mu, true.pi, strict=True))
        ends = {end: evaluate(full_interval.THEOREM.claim(end), known) for end in ("low", "high")}
        check.at_most(ends["low"] - widths["low"], direction, "widened lower end")
        check.at_most(direction, ends["high"] + widths["high"], "widened upper end")
        # Each part at its corner, one by one.
        mu_S, pi_S, p, up, down = stored["mu"], stored["pi"], known["pi_T"], 1 + radius, 1 - radius
        seen = pi_S[pair.k] * up - mu_S[pair.k] * down - (pi_S[pair.k] - mu_S[pair.k])
        seen += fsum(a * up * b * up - a * b + (b * up) ** 2 - b * b for a, b in zip(mu_S, pi_S, strict=True))
        cap = min(known["mu_K"], known["mu_T"])
        square, overlap = (p + radius) ** 2 - p * p, (p + radius) * (cap + radius) - p * cap
        check.equal(widths["seen"] / radius, seen / radius, "seen part")
        check.equal(widths["low"] / radius, (seen + square) / radius, "lower end")
        check.equal(widths["high"] / radius, (seen + overlap + square / size) / radius, "upper end")

    def compare(check: Comparison, pair: Pair) -> None:
        for radius in (mpf("0.3"), mpf(2) ** -8, mpf(2) ** -24):
            compare_one(check, pair, radius)

    pairs = (p for size in (4, 7) for p in random_pairs(seed + size, 8, (size,), (size + 1) // 2))
    return certificate(dps, pairs, compare)


THEOREM = register(
    Theorem(
        name="interval_rounding",
        title="Extra width of the interval for rounded probabilities",
        statement=(
            r"If every retained probability is known up to a relative error $\epsilon$, so that the true value is the "
            r"stored one times $1 + \rho$, $|\rho| \le \epsilon$, the interval of theorem full_interval computed from "
            r"the stored ones contains the true slope after its lower end is lowered and its upper end raised by the "
            r"amounts below. For log-probabilities stored with absolute error $h$, $\epsilon = e^h - 1$."
        ),
        source="own derivation",
        mark="N",
        assumptions=(
            r"$\mu_i$, $\pi_i$, $i \in S$, are the stored values, $\mu_T$, $\pi_T$ one minus their sums, not below 0",
            r"$0 < \epsilon < 1$; retained masses at most 1, true and stored, so a tail is off by at most $\epsilon$",
            r"sums are formed exactly, or with an error that $\epsilon$ includes",
        ),
        claims=(
            Claim("seen", r"\text{width of the seen part}", SEEN),
            Claim("low", r"\text{extra width below}", SEEN + SQUARE),
            Claim("high", r"\text{extra width above}", SEEN + eps * (CAP + pi_T) + eps**2 + SQUARE / (n - m)),
        ),
        prover=prove,
        certifier=certify,
    )
)
