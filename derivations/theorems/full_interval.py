"""The certificate: what a Top-K record says about the slope over the whole vocabulary."""

from __future__ import annotations

from functools import partial
from typing import Any

from mpmath import fsum, log, mpf
from sympy import Expr, Integer, Max, Min, Symbol, sqrt

from derivations import measures, tails
from derivations.numeric import Certificate, Comparison, Pair, certificate, evaluate, forward_kl, random_pairs, retained
from derivations.proof import Proof, Step
from derivations.render import latex
from derivations.setting import RETAINED, TAIL, c, i, k, m, mu, n, pi
from derivations.sums import total
from derivations.tails import COLLISION, c2, mu_T, pi_T
from derivations.theorem import Claim, Claims, Theorem, register

mu_K = Symbol("mu_K", positive=True)  # no unseen token is likelier under mu: the K-th largest mu
CAP = Min(mu_K, mu_T)
Q = mu_T * CAP  # at least the sum of mu_i^2 over the tail
LEAST, LARGEST = COLLISION["uniform"], COLLISION["aggregated"]
WORST = Min(Max(Q / 4, LEAST), LARGEST)  # the c2 at which sqrt(c2 q) - c2 is largest
SEEN = (pi[k] - mu[k]) + total(pi[i] * (mu[i] - pi[i]), i, RETAINED)


def full_slope(proof: Proof) -> Expr:
    """Slope of the full forward KL, with the sum over the vocabulary split into support and tail."""
    policy, _ = tails.exact_tail()
    divergence = sum(total(measures.forward_kl(mu[i], policy(i)), i, over) for over in (RETAINED, TAIL))
    return proof.differentiate("differentiate the full forward KL", divergence, c, Integer(0))


def _overlap(proof: Proof, claims: Claims) -> None:
    """Largest and least overlap of the two tails, for either of the two limits on a tail token's mu."""
    short = Symbol("s", nonnegative=True)
    for name, cap in ((r"$\mu_{(K)} \le \mu_T$", mu_K), (r"$\mu_T \le \mu_{(K)}$", mu_T)):
        proof.at_least(f"{name}: no tail token exceeds it, so each adds at most $\\pi_i$ times it",
                       (pi[i] * cap - pi[i] * mu[i]).xreplace({mu[i]: cap - short}), Integer(0))  # fmt: skip
        proof.equal(f"{name}: summed over the tail; reached if one such token holds $\\pi_T$",
                    total(pi[i] * cap, i, TAIL), claims["overlap"].xreplace({CAP: cap}))  # fmt: skip
        others = mu_T - (n - m - 1) * cap
        proof.equal(f"{name}: the others hold at most this each, so a token keeps at least the rest; $\\pi_T$ there",
                    pi_T * Max(0, others), claims["scarce"].xreplace({CAP: cap}))  # fmt: skip


def _sharp(proof: Proof, claims: Claims) -> None:
    """Cauchy-Schwarz, then the largest value of x s - x^2 where x = sqrt(c2) lies between the ends of its range."""
    overlap, squares = total(pi[i] * mu[i], i, TAIL), total(mu[i] ** 2, i, TAIL)
    proof.equal("Cauchy-Schwarz: what the overlap lacks is a sum of squares",
                squares - overlap**2 / c2, total((mu[i] - overlap / c2 * pi[i]) ** 2, i, TAIL))  # fmt: skip
    s, x, a, t, v = (Symbol(name, positive=True) for name in "sxatv")
    value = x * s - x**2
    slope = proof.differentiate(
        r"so with $x^2 = c_2$, $s^2 = q$ the rest is at most $x s - x^2$; differentiate", value, x
    )
    proof.equal(r"it is largest at $x = s / 2$", slope.xreplace({x: s / 2}), Integer(0))
    for name, worst, case, gap in (
        ("$q / 4$ in the range of $c_2$", Q / 4, {a: s / 2}, (x - s / 2) ** 2),
        ("$q / 4$ below it: $a = s / 2 + v$, $x = a + t$", LEAST, {x: a + t}, None),
        ("$q / 4$ above it: $a = s / 2 - v$, $x = a - t$", LARGEST, {x: a - t}, None),
    ):
        claimed = claims["sharp"].xreplace({WORST: a**2}).xreplace({CAP: s**2 / mu_T})
        lacking = (claimed - value).xreplace(case)
        if gap is not None:
            proof.equal(f"{name}: the value there exceeds any other by a square", lacking, gap)
            continue
        at_end = lacking.xreplace({s: 2 * (a - v) if worst is LEAST else 2 * (a + v)})
        proof.at_least(f"{name}: the value at the end $a$ is not exceeded", at_end, Integer(0))


def prove(claims: Claims) -> list[Step]:
    proof = Proof(tails.FACTS)
    overlap, squares = total(pi[i] * mu[i], i, TAIL), total(pi[i] ** 2, i, TAIL)
    proof.equal(r"it is a part that was seen, plus the tail's overlap minus $c_2$",
                full_slope(proof), SEEN + overlap - c2)  # fmt: skip
    _overlap(proof, claims)
    _sharp(proof, claims)
    slope = SEEN + overlap - c2
    above_low = overlap + total(pi[i] * (pi_T - pi[i]), i, TAIL)
    proof.equal(r"the slope exceeds the lower end by products of what is not negative; $c_2$ written out",
                slope.xreplace({c2: squares}) - claims["low"], above_low)  # fmt: skip
    for cap in (mu_K, mu_T):
        below_high = total(pi[i] * (cap - mu[i]), i, TAIL) + total((pi[i] - pi_T / (n - m)) ** 2, i, TAIL)
        proof.equal(f"and falls short of the upper end by such products and squares, where the limit is ${latex(cap)}$",
                    claims["high"].xreplace({CAP: cap}) - slope.xreplace({c2: squares}), below_high)  # fmt: skip
    return proof.steps


def _ordered(pair: Pair) -> Pair:
    """The same pair with tokens numbered by falling mu, so that the first m are the Top-K."""
    order = sorted(range(len(pair.mu)), key=lambda token: -pair.mu[token])
    return Pair([pair.mu[t] for t in order], [pair.logits[t] for t in order], pair.k)


def _with_tail(pair: Pair, m: int, mu_tail: list[mpf], pi_tail: list[mpf]) -> Pair:
    return Pair([*pair.mu[:m], *mu_tail], [log(p) for p in [*pair.pi[:m], *pi_tail]], pair.k)


def _sharpest(mass: mpf, size: int, many: int) -> list[tuple[dict[str, Any], mpf]]:
    """Tails that reach the sharp limit, one for each place of q / 4: (masses and numbers, overlap minus collision)."""
    m, each = 1, mass / size
    flat_pi, half = 2 * each / 3, each / 2
    rest = mass / 7  # spread over so many tokens that its collision mass vanishes
    return [
        (
            {"m": m, "n": m + size, "mu_T": mass, "mu_K": each, "pi_T": flat_pi * size},
            size * flat_pi * (each - flat_pi),
        ),
        ({"m": m, "n": m + many, "mu_T": mass, "mu_K": each, "pi_T": half * size + rest}, size * half * (each - half)),
        ({"m": m, "n": m + size, "mu_T": mass, "mu_K": mass, "pi_T": mass / 3}, mass / 3 * (mass - mass / 3)),
    ]


def certify(claims: Claims, dps: int, seed: int) -> Certificate:
    edge = mpf(10) ** (-(dps // 2) - 3)

    def slope(check: Comparison, pair: Pair) -> mpf:
        return check.along(pair, pair.step, partial(forward_kl, pair.mu))

    def compare(check: Comparison, pair: Pair) -> None:
        m = (len(pair.mu) + 1) // 2
        pair = _ordered(pair)
        size = len(pair.mu) - m
        known: dict[str, Any] = {**retained(pair, m), "n": len(pair.mu), "mu_K": pair.mu[m - 1]}
        low, high, overlap, scarce, sharp = (
            evaluate(claims[label], known) for label in ("low", "high", "overlap", "scarce", "sharp")
        )
        measured = slope(check, pair)
        check.at_most(low, measured, "lower end")
        check.at_most(measured, high, "upper end")
        tails_mu, tails_pi = pair.mu[m:], pair.pi[m:]
        parts = fsum(p * q for p, q in zip(tails_mu, tails_pi, strict=True)), fsum(q * q for q in tails_pi)
        check.at_most(scarce, parts[0], "least overlap")
        check.at_most(parts[0], overlap, "overlap")
        check.at_most(parts[0] - parts[1], sharp, "overlap minus collision")
        seen, mass_mu, mass_pi = measured - parts[0] + parts[1], known["mu_T"], known["pi_T"]
        # The extreme tails: pi in one token without mu; pi in one token with all the mu that it may have; pi flat.
        point = [mass_pi * (1 - edge * (size - 1)), *[mass_pi * edge] * (size - 1)]
        absent = [mass_mu * edge, *[mass_mu * (1 - edge) / (size - 1)] * (size - 1)]
        check.at_most(abs(slope(check, _with_tail(pair, m, absent, point)) - low), 8 * edge, "lower end approached")
        cap = min(known["mu_K"], mass_mu) * (1 - edge)
        full = [cap, *[(mass_mu - cap) / (size - 1)] * (size - 1)]
        found = fsum(p * q for p, q in zip(full, point, strict=True))
        check.at_most(abs(found - overlap), 8 * edge, "overlap approached")
        check.equal(high, seen + overlap - mass_pi**2 / size, "upper end from its two parts")
        # pi in the token that has least mu, all others having as much as they may.
        cap = mass_mu / (size - mpf("0.5"))
        rare = [mass_mu - (size - 1) * cap, *[cap] * (size - 1)]
        least = fsum(p * q for p, q in zip(rare, point, strict=True))
        claimed = evaluate(claims["scarce"], {**known, "mu_K": cap})
        check.at_most(abs(claimed - least), 8 * edge, "least overlap approached")
        check.at_most(claimed, least, "least overlap")
        for extreme, best in _sharpest(mass_mu, size, 10**dps):
            check.equal(evaluate(claims["sharp"], {**known, **extreme}), best, "overlap minus collision reached")

    sizes = (4, 5, 9)
    pairs = (p for size in sizes for p in random_pairs(seed + size, 8, (size,), (size + 1) // 2))
    return certificate(dps, pairs, compare)


THEOREM = register(
    Theorem(
        name="full_interval",
        title="Interval for the full-vocabulary slope",
        statement=(
            r"From a Top-K record alone the slope of the full forward KL is known up to the tail: it lies between the "
            r"two ends below, so its sign is certain where both have it. What the tail adds is its overlap minus "
            r"$c_2$. The least overlap may be added to the lower end. The upper end combines the largest overlap with "
            r"the least $c_2$; the last amount limits both together and may take the place of that pair. "
            r"$\mu_{(K)}$ is the smallest rollout probability among the Top-K."
        ),
        source="own derivation",
        mark="N",
        assumptions=(
            *tails.ASSUMPTIONS,
            r"$S$ contains the Top-K of $\mu$: $\mu_i \le \mu_{(K)}$ for $i \in T$; $n - m \ge 2$ to approach the ends",
        ),
        claims=(
            Claim("low", r"\text{lower end}", SEEN - pi_T**2),
            Claim("high", r"\text{upper end}", SEEN + pi_T * CAP - pi_T**2 / (n - m)),
            Claim("overlap", r"\sup \sum_{i \in T} \pi_i \mu_i", pi_T * CAP),
            Claim("scarce", r"\inf \sum_{i \in T} \pi_i \mu_i", pi_T * Max(0, mu_T - (n - m - 1) * CAP)),
            Claim("sharp", r"\sum_{i \in T} \pi_i (\mu_i - \pi_i)", sqrt(WORST * Q) - WORST, "<="),
        ),
        prover=prove,
        certifier=certify,
    )
)
