"""Where the local term of each measure changes its sign, as a value of the ratio."""

from __future__ import annotations

from functools import partial

from mpmath import mpf, sign
from sympy import Expr, Integer, LambertW, Symbol, cancel, exp, log, sqrt, together
from sympy import sign as sympy_sign

from derivations import measures, setting
from derivations.convexity import SMOOTH, increasing, slope_in_ratio, w
from derivations.numeric import DIVERGENCES, GENTLE, Certificate, Comparison, Pair, certificate, evaluate, random_pairs
from derivations.objectives import r
from derivations.proof import Proof, Step
from derivations.setting import FULL, i, k, mu, n, pi
from derivations.sums import total
from derivations.theorem import Claim, Claims, Theorem, register
from derivations.theorems import measure_slopes
from derivations.theorems.measure_slopes import BC, SIGMA, B, Q, R, X, Y

#: mean of phi'(pi_i / mu_i) under pi
MEANS: dict[str, Expr] = {
    "forward_kl": Integer(-1),
    "reverse_kl": 1 + R,
    "jeffreys": R,
    "js": Q / 2,
    "hellinger2": (1 - BC) / 2,
    "chi2_pearson": 2 * X,
    "chi2_neyman": -Y,
}
THRESHOLDS: dict[str, Expr] = {
    "forward_kl": Integer(1),
    "reverse_kl": exp(R),
    "tv": Integer(1),
    "jeffreys": 1 / LambertW(exp(1 - R)),
    "js": exp(Q) / (2 - exp(Q)),
    "hellinger2": 1 / BC**2,
    "chi2_pearson": 1 + X,
    "chi2_neyman": 1 / sqrt(1 + Y),
    "l2": 1 + B / mu[k],
}
_x = Symbol("x", positive=True)
_real = Symbol("R", real=True)
#: the values that occur, written so that SymPy sees the signs that they have: Q < log 2, R = 1 - x - log(x) with x > 0
VALUES: dict[str, dict[Expr, Expr]] = {
    "forward_kl": {},
    "reverse_kl": {R: _real},
    "jeffreys": {R: 1 - _x - log(_x)},
    "js": {Q: log(2 / (1 + _x))},
    "hellinger2": {BC: _x},
    "chi2_pearson": {X: _x},
    "chi2_neyman": {Y: _x},
}

_y = Symbol("y", positive=True)
#: the same away from pi = mu, where R, Q, X and Y are positive and BC is below 1: values for any y > 0
APART: dict[str, dict[Expr, Expr]] = {
    "reverse_kl": {_real: log(1 + _y)},
    "jeffreys": {_x: 1 / (1 + _y)},  # 1 - x - log(x) falls with x, from 0 at x = 1
    "js": {_x: 1 / (1 + _y)},
    "hellinger2": {_x: 1 / (1 + _y)},
    "chi2_pearson": {_x: _y},
    "chi2_neyman": {_x: (1 + _y) ** 2 - 1},
}


def _by_definition(expr: Expr) -> Expr:
    """LambertW(x e^x) = x for x > 0."""
    return expr.replace(LambertW, lambda argument: _x if cancel(argument / (_x * exp(_x))) == 1 else LambertW(argument))


def prove(claims: Claims) -> list[Step]:
    proof = Proof(setting.FACTS)
    for name in SMOOTH:
        slope = slope_in_ratio(proof, name)
        increasing(proof, name, slope)
        mean = total(pi[i] * slope.xreplace({w: pi[i] / mu[i]}), i, FULL)
        proof.equal(
            f"{name}: its mean under $\\pi$; the local term is $\\pi_k$ times slope minus mean", mean, MEANS[name]
        )
        value = VALUES[name]
        place = cancel(together(_by_definition(claims[name].xreplace(value))))
        proof.equal(f"{name}: the slope at the threshold is the mean, so there the local term changes its sign",
                    slope.xreplace({w: place}), MEANS[name].xreplace(value))  # fmt: skip
        proof.greater(f"{name}: and it is a ratio, positive", place, Integer(0))
        if name in APART:
            ends = (place.xreplace(APART[name]), Integer(1))
            larger, smaller = ends if name != "chi2_neyman" else ends[::-1]
            proof.greater(f"{name}: it is not 1 where $\\pi$ and $\\mu$ differ", larger, smaller)
    local = measure_slopes.THEOREM.claim("l2, local").xreplace({pi[k]: mu[k] * r})
    proof.equal("l2: the local term is $r$ minus the threshold, times something positive",
                local, mu[k] ** 2 * r * (r - claims["l2"]))  # fmt: skip
    uniform = claims["l2"].replace(lambda e: e.is_Indexed and e.base == pi, lambda e: 1 / n)
    proof.equal(r"l2: it is 1 also for other pairs, as for uniform $\pi$ and any $\mu$", uniform, Integer(1))
    proof.equal(
        r"tv: $\sum_i \pi_i s_i$ lies below 1 by a sum that is positive, because some $\pi_i$ lies below $\mu_i$ "
        r"($s_i = -1$), and in the same way above -1; so the local term $\pi_k (s_k - \sum_i \pi_i s_i) / 2$ has the "
        r"sign $s_k$",
        1 - SIGMA,
        total(pi[i] * (1 - sympy_sign(pi[i] - mu[i])), i, FULL),
    )
    proof.equal(r"tv: and $s_k$ is the sign of $r$ minus the threshold",
                sympy_sign(mu[k] * r - mu[k]), sympy_sign(r - claims["tv"]))  # fmt: skip
    return proof.steps


def certify(claims: Claims, dps: int, seed: int) -> Certificate:
    def compare(check: Comparison, pair: Pair) -> None:
        pi_k, mu_k = pair.pi[pair.k], pair.mu[pair.k]
        known = {"mu": pair.mu, "pi": pair.pi, "k": pair.k, "n": len(pair.mu)}
        for name, divergence in DIVERGENCES.items():
            local = check.along(pair, pair.axis(pair.k), partial(divergence, pair.mu))
            threshold = evaluate(claims[name], known)

            def slope(ratio: mpf, d=divergence) -> mpf:
                return check.slope(lambda h: d([mpf(1)], [ratio * (1 + h)])) / ratio

            if name == "l2":
                check.equal(pi_k * mu_k * (pi_k / mu_k - threshold), local, "l2: local term")
            elif name == "tv":
                check.equal(sign(pi_k / mu_k - threshold), sign(local), "tv: sign of the local term")
            else:
                check.at_most(-threshold.real, mpf(0), f"{name}: positive")
                check.equal(pi_k * (slope(pi_k / mu_k) - slope(threshold)), local, f"{name}: local term")

    return certificate(dps, random_pairs(seed, 12, (3, 2, 5), widths=GENTLE), compare)


THEOREM = register(
    Theorem(
        name="ratio_thresholds",
        title="What the local term compares the ratio with",
        statement=(
            r"The local term of each measure is positive exactly where the sampled ratio $r = \pi_k / \mu_k$ exceeds "
            r"the threshold below. It is always 1 for the forward KL and for TV alone: only for these two is the ratio "
            r"criterion the predicted direction without its global term. For the others even the local term has a "
            r"shifted threshold. It is never 1 where $\pi$ and $\mu$ differ, but for l2, where $B = 0$ makes it 1, as "
            r"for uniform $\pi$; for Jeffreys it solves $1 - 1/r + \log r = R$, "
            r"$R$ the KL of $\pi$ to $\mu$ (LambertW is the inverse of $x e^x$)."
        ),
        source="own derivation",
        mark="N",
        assumptions=(
            *setting.ASSUMPTIONS,
            r"for TV: no $\pi_i$ equals $\mu_i$; for JS: $2 - e^Q > 0$, as $Q < \log 2$ for any two policies",
        ),
        claims=tuple(
            Claim(name, rf"r^*_{{\text{{{name.replace('_', ' ')}}}}}", THRESHOLDS[name]) for name in measures.NAMES
        ),
        prover=prove,
        certifier=certify,
    )
)
