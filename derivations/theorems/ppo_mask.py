"""PPO's clipped objective as a mask with D = |r - 1|, and what that distance has to do with TV."""

from __future__ import annotations

from itertools import product

from mpmath import exp, mpf
from sympy import Abs, Expr, Max, Min, Symbol, cancel, factor, sign

from derivations import measures, objectives, setting
from derivations.cases import size
from derivations.numeric import DIVERGENCES, GENTLE, Certificate, Comparison, Pair, certificate, evaluate, random_pairs
from derivations.objectives import eps, r
from derivations.proof import Proof, ProofError, Step
from derivations.setting import FULL, A, i, mu, pi
from derivations.sums import total
from derivations.theorem import Claim, Claims, Theorem, register

OUTWARD = (1 + sign(A * (r - 1))) / 2
OUTSIDE = (1 + sign(Abs(r - 1) - eps)) / 2

_t, _room = Symbol("t", positive=True), Symbol("s", positive=True)
#: place of r -> (r, eps), written by the distance t that a derivative may move
PLACES: dict[str, tuple[Expr, Expr]] = {
    r"r > 1 + \epsilon": (1 + eps + _t, eps),
    r"1 < r < 1 + \epsilon": (1 + _t, _t + _room),
    r"1 - \epsilon < r < 1": (1 - _t, _t + _room),
    r"r < 1 - \epsilon": (1 - eps - _t, eps),
}


def _resolved(expr: Expr) -> Expr:
    """Every Min and Max decided by the declared signs."""

    def pick(function: type[Min | Max], *options: Expr) -> Expr:
        best = options[0]
        for option in options[1:]:
            gap = factor(cancel(option - best))
            if gap.is_nonnegative is None and gap.is_nonpositive is None:
                raise ProofError(f"the case leaves undecided which of {option} and {best} is smaller")
            best = option if bool(gap.is_nonpositive) == (function is Min) else best
        return best

    for function in (Max, Min):  # clip is a Max inside the objective's Min
        expr = expr.replace(function, lambda *options, f=function: pick(f, *options))
    return expr


def prove(claims: Claims) -> list[Step]:
    proof = Proof(setting.FACTS)
    for advantage, (place, (ratio, radius)) in product((size, -size), PLACES.items()):
        name = f"$A {'>' if advantage == size else '<'} 0$, ${place}$"
        # Inside the band the objective that is left does not mention eps, so eps = t + s may be written there.
        left = _resolved(objectives.clipped(ratio, advantage, radius))
        slope = proof.differentiate(f"{name}: differentiate what is left of the objective", left, _t)
        claimed = claims["coefficient"].xreplace({A: advantage, r: ratio, eps: radius})
        proof.equal(f"{name}: divided by $dr/dt$, the coefficient of $r$", slope / ratio.diff(_t), claimed)
    divergence = measures.over_vocabulary(measures.tv, lambda token: pi[token])
    proof.equal(r"$\mu_i |r_i - 1| = |\pi_i - \mu_i|$: the mean of $D / 2$ is TV", divergence, claims["tv"])
    return proof.steps


def _clipped(ratio: mpf, advantage: mpf, radius: mpf) -> mpf:
    inside = max(1 - radius, min(1 + radius, ratio))
    return min(ratio * advantage, inside * advantage)


def certify(claims: Claims, dps: int, seed: int) -> Certificate:
    def compare(check: Comparison, pair: Pair) -> None:
        sampled = pair.pi[pair.k] / pair.mu[pair.k]
        for advantage, radius in product((mpf("0.75"), mpf(-2)), (mpf("0.04"), mpf("0.2"), mpf("0.5"))):
            for ratio in (sampled, 1 + radius / 2, 1 - radius / 2, 1 + radius * 2, 1 - radius * mpf("1.5")):
                known = {"A": advantage, "r": ratio, "epsilon": radius}

                def value(h: mpf, x=ratio, a=advantage, e=radius) -> mpf:
                    return _clipped(x * exp(h), a, e)  # in log r: a rare token costs no digits

                check.equal(ratio * evaluate(claims["coefficient"], known), check.slope(value), "r dJ/dr")
        known = {"mu": pair.mu, "pi": pair.pi, "n": len(pair.mu)}
        check.equal(evaluate(claims["tv"], known), DIVERGENCES["tv"](pair.mu, pair.pi), "half the mean of |r - 1|")

    return certificate(dps, random_pairs(seed, 8, (2, 4), widths=GENTLE), compare)


THEOREM = register(
    Theorem(
        name="ppo_mask",
        title="PPO is a mask with the distance |r - 1|",
        statement=(
            r"The derivative of PPO's clipped objective in $r$ is $A$ times a mask that drops a token where the update "
            r"is outward, $A (r - 1) > 0$, and $D = |r - 1|$ exceeds $\epsilon$. This is DPPO's mask with that $D$ in "
            r"the place of a divergence. The mean of $D / 2$ over tokens drawn from $\mu$ is the TV distance, the "
            r"second claim: PPO compares one sample of it with its radius."
        ),
        source="arXiv 2602.04879, Eqs. 10 to 12",
        mark="F",
        assumptions=(*setting.ASSUMPTIONS, r"$A \neq 0$, $\epsilon > 0$; $r$ is not at an edge of the band"),
        claims=(
            Claim("coefficient", r"dJ/dr", A * (1 - OUTWARD * OUTSIDE)),
            Claim("tv", r"\text{TV}", total(mu[i] * Abs(pi[i] / mu[i] - 1), i, FULL) / 2),
        ),
        prover=prove,
        certifier=certify,
    )
)
