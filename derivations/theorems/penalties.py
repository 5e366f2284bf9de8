"""Other penalties in the place of DRPO's regulariser: their coefficients, and the divergences they estimate."""

from __future__ import annotations

import sympy
from mpmath import exp, fabs, fsum, log, mpf
from sympy import Expr, Integer, Symbol, sign

from derivations import measures, objectives, setting
from derivations.numeric import DIVERGENCES, GENTLE, Certificate, Comparison, Pair, certificate, evaluate, random_pairs
from derivations.objectives import PENALTIES, lam, r
from derivations.proof import Proof, Step
from derivations.setting import FULL, A, i, mu, pi
from derivations.sums import total
from derivations.theorem import Claim, Claims, Theorem, register

ESTIMATES = {"k3": "forward_kl", "reverse_kl": "reverse_kl", "forward_kl": "forward_kl", "tv": "tv"}
NUMERIC = {
    "k3": lambda r: r - 1 - log(r),
    "reverse_kl": lambda r: r * log(r),
    "forward_kl": lambda r: -log(r),
    "tv": lambda r: fabs(r - 1) / 2,
}
SLOPES: dict[str, Expr] = {
    "k3": A - lam * (1 - 1 / r),
    "reverse_kl": A - lam * (1 + sympy.log(r)),
    "forward_kl": A + lam / r,
    "tv": A - lam * sign(r - 1) / 2,
}


def prove(claims: Claims) -> list[Step]:
    proof = Proof(setting.FACTS)
    for name in PENALTIES:
        slope = proof.differentiate(f"{name}: differentiate $r A$ minus the penalty in $r$",
                                    objectives.penalised(name, r, A, lam), r)  # fmt: skip
        proof.equal(f"{name}: the coefficient of $r$", slope, claims[name])
        mean = total(mu[i] * objectives.penalty(name, pi[i] / mu[i]), i, FULL)
        divergence = measures.over_vocabulary(measures.term(ESTIMATES[name]), lambda token: pi[token])
        proof.equal(f"{name}: its mean under $\\mu$ is {ESTIMATES[name]}", mean, divergence)
    x = Symbol("x", positive=True)
    pull = claims["forward_kl"] - A
    proof.equal(r"forward_kl: times $r$ its pull is the constant $\lambda$, whatever the policy", pull * r, lam)
    for name, at, sign_of_pull in (("r > 1", 1 + x, 1), ("r < 1", 1 / (1 + x), -1)):
        pull = (A - claims["k3"]).xreplace({r: at})
        proof.greater(f"k3, ${name}$: it pulls towards $r = 1$", sign_of_pull * pull, Integer(0))
        step_of_tv = (A - claims["tv"]).xreplace({r: at})
        proof.equal(
            f"tv, ${name}$: the pull has one size, however far the token is", step_of_tv, sign_of_pull * lam / 2
        )
    return proof.steps


def certify(claims: Claims, dps: int, seed: int) -> Certificate:
    def compare(check: Comparison, pair: Pair) -> None:
        pi_k, mu_k = pair.pi[pair.k], pair.mu[pair.k]
        ratio = pi_k / mu_k
        for name in PENALTIES:
            penalty = NUMERIC[name]
            for advantage, weight in ((mpf("0.75"), mpf("0.1")), (mpf(-2), mpf(3))):
                known = {"r": ratio, "A": advantage, "lambda": weight}

                def value(h: mpf, f=penalty, a=advantage, w=weight) -> mpf:  # in log r: a rare token costs no digits
                    moved = ratio * exp(h)
                    return moved * a - w * f(moved)

                check.equal(ratio * evaluate(claims[name], known), check.slope(value), f"{name}: r dJ/dr")
            mean = fsum(p * penalty(q / p) for p, q in zip(pair.mu, pair.pi, strict=True))
            check.equal(DIVERGENCES[ESTIMATES[name]](pair.mu, pair.pi), mean, f"{name}: mean under mu")

    return certificate(dps, random_pairs(seed, 8, (2, 4), widths=GENTLE), compare)


THEOREM = register(
    Theorem(
        name="penalties",
        title="Other penalties",
        statement=(
            r"A penalty $\lambda f(r)$ on the sampled ratio changes the coefficient of $r$ from $A$ to the values "
            r"below, for $f$ = K3 ($r - 1 - \log r$), $r \log r$, $-\log r$ and $|r - 1| / 2$. Their means under $\mu$ "
            r"are KL of $\mu$ to $\pi$, KL of $\pi$ to $\mu$, again KL of $\mu$ to $\pi$, and TV. As single samples "
            r"they pull in ratio space, with one size (TV), or by a constant that sees no policy at all ($-\log r$): "
            r"none has DRPO's weight, which grows with $|\pi_k - \mu_k|$."
        ),
        source="arXiv 2606.09821, Appendix C; exact forms not known",
        mark="I",
        assumptions=(
            *setting.ASSUMPTIONS,
            r"$\lambda > 0$ (multiplied by $|A|$ where the penalty is weighted); $r \neq 1$ for TV",
        ),
        claims=tuple(Claim(name, rf"dJ/dr\ (\text{{{name.replace('_', ' ')}}})", SLOPES[name]) for name in PENALTIES),
        prover=prove,
        certifier=certify,
    )
)
