"""The regularisers of DRPO and SPO in expectation: a squared l2 and a chi-squared distance."""

from __future__ import annotations

import random
from typing import Any

from mpmath import fabs, fsum, mpf
from sympy import Abs, Expr, IndexedBase, Integer

from derivations import objectives, setting
from derivations.numeric import GENTLE, Certificate, Comparison, Pair, certificate, evaluate, moved, random_pairs
from derivations.objectives import delta, eps
from derivations.proof import Proof, Step
from derivations.setting import FULL, c, i, j, mu, pi
from derivations.sums import total
from derivations.theorem import Claim, Claims, Theorem, register

advantage = IndexedBase("A", real=True)  # A_i, the advantage of token i at this state


def prove(claims: Claims) -> list[Step]:
    proof = Proof(setting.FACTS)
    policy = setting.along(setting.arbitrary)

    def sampled(token: Expr, probability: Expr) -> dict[str, Expr]:
        ratio = probability / mu[token]
        return {
            "drpo": objectives.drpo_regulariser(ratio, advantage[token], mu[token], delta),
            "spo": objectives.spo_regulariser(ratio, advantage[token], eps),
        }

    for name in ("drpo", "spo"):
        mean = total(mu[i] * sampled(i, pi[i])[name], i, FULL)
        proof.equal(f"{name}: the mean of the regulariser over tokens drawn from $\\mu$", mean, claims[name])
        moving = total(mu[i] * sampled(i, policy(i))[name], i, FULL)
        slope = proof.differentiate(f"{name}: its slope along any direction $u$ in the logits", moving, c, Integer(0))
        along = claims[name].replace(lambda e: e.is_Indexed and e.base == pi, lambda e: policy(e.indices[0]))
        claimed = proof.differentiate(f"{name}: and that of the distance", along, c, Integer(0))
        proof.equal(f"{name}: the two pull alike", slope, claimed)
    share = {name: sampled(j, pi[j])[name] for name in ("drpo", "spo")}
    proof.equal(
        r"per token SPO's is DRPO's with $\delta = \epsilon \mu_j$: the cost of a given shift grows as $1 / \mu_j$",
        share["spo"],
        share["drpo"].xreplace({delta: eps * mu[j]}),
    )
    return proof.steps


def certify(claims: Claims, dps: int, seed: int) -> Certificate:
    rng = random.Random(seed)

    def compare(check: Comparison, pair: Pair) -> None:
        row = [mpf(rng.gauss(0, 1)) for _ in pair.mu]
        direction = [mpf(rng.gauss(0, 1)) for _ in pair.mu]
        for radius in (mpf("0.15"), mpf("12.5")):
            known = {"mu": pair.mu, "A": row, "n": len(pair.mu), "delta": radius, "epsilon": radius}

            def drpo(policy: list[mpf], d=radius) -> mpf:
                tokens = zip(pair.mu, policy, row, strict=True)
                return fsum(p * fabs(a) * p * (q / p - 1) ** 2 / (2 * d) for p, q, a in tokens)

            def spo(policy: list[mpf], e=radius) -> mpf:
                return fsum(
                    p * fabs(a) * (q / p - 1) ** 2 / (2 * e) for p, q, a in zip(pair.mu, policy, row, strict=True)
                )

            for name, measured in (("drpo", drpo), ("spo", spo)):
                for policy in (pair.pi, moved(pair.logits, direction, mpf("0.3"))):
                    value = evaluate(claims[name], {**known, "pi": policy})
                    check.equal(value, measured(policy), f"{name}: mean regulariser")

                def claimed(h: mpf, right: Expr = claims[name], values: dict[str, Any] = known) -> mpf:
                    return evaluate(right, {**values, "pi": moved(pair.logits, direction, h)})

                slope = check.slope(claimed)
                check.equal(slope, check.along(pair, direction, measured), f"{name}: slope")

    return certificate(dps, random_pairs(seed, 8, (3, 2, 5), widths=GENTLE), compare)


THEOREM = register(
    Theorem(
        name="expected_regulariser",
        title="DRPO and SPO in expectation",
        statement=(
            r"Over tokens drawn from $\mu$, DRPO's regulariser averages to a squared l2 distance of $\pi$ to $\mu$, "
            r"weighted by $|A_i|$, and SPO's to a chi-squared distance: each token's squared shift is divided by "
            r"$\mu_i$, which makes SPO's pull on rare tokens as large as they are rare."
        ),
        source="arXiv 2606.09821, probably Eqs. 10 and 11",
        mark="S",
        assumptions=(
            *setting.ASSUMPTIONS,
            r"$A_i$ is the advantage of token $i$ at this state; $\delta, \epsilon > 0$",
        ),
        claims=(
            Claim(
                "drpo",
                r"\sum_i \mu_i\, \text{DRPO}_i",
                total(Abs(advantage[i]) * (pi[i] - mu[i]) ** 2, i, FULL) / (2 * delta),
            ),
            Claim(
                "spo",
                r"\sum_i \mu_i\, \text{SPO}_i",
                total(Abs(advantage[i]) * (pi[i] - mu[i]) ** 2 / mu[i], i, FULL) / (2 * eps),
            ),
        ),
        prover=prove,
        certifier=certify,
    )
)
