"""Policy improvement over a finite horizon: the DPPO paper's identity and its two penalties."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

from mpmath import fsum, mpf, sign
from sympy import Abs, Expr, IndexedBase, Integer, Symbol, exp, log, summation

from derivations.numeric import Certificate, Comparison, Vector, certificate, evaluate, softmax
from derivations.proof import Proof, Step
from derivations.setting import FACTS, FULL, i, mu, pi
from derivations.sums import Facts, Range, total
from derivations.theorem import Claim, Claims, Theorem, register

T = Symbol("T", integer=True, positive=True)  # horizon; steps carry the numbers 0..T-1
t = Symbol("t", integer=True, nonnegative=True)
STEPS: Range = (Integer(0), T - 1)
r = IndexedBase("r", positive=True)  # importance ratio of step t
rho = IndexedBase("rho", positive=True)  # product of the ratios of all later steps, 1 for the last one
d = IndexedBase("d", positive=True)  # mean over mu of the TV distance at step t
xi, tau = Symbol("xi", positive=True), Symbol("tau", positive=True)  # largest |R|, largest TV of a state


def prove(claims: Claims) -> list[Step]:
    proof = Proof(Facts())
    telescope = total((r[t] - 1) * rho[t], t, STEPS)
    proof.equal(r"surrogate minus correction, on one response: $\sum_t (r_t - 1) \rho_t$",
                claims["surrogate"] - claims["correction"], telescope)  # fmt: skip
    product, last = Symbol("P", positive=True), Symbol("r_last", positive=True)
    proof.equal(
        "which is the product of all ratios minus 1: no step, nothing; a further step multiplies the earlier terms by "
        "its ratio and adds its own, so from $P - 1$ follows",
        last * (product - 1) + (last - 1),
        product * last - 1,
    )
    reward = IndexedBase("R", real=True)
    whole = Proof(FACTS)  # here the "tokens" are whole responses
    whole.equal(r"the mean under $\mu$ of $R (\prod_t r_t - 1)$ over all responses is $J(\pi) - J(\mu)$",
                total(mu[i] * reward[i] * (pi[i] / mu[i] - 1), i, FULL),
                total(pi[i] * reward[i], i, FULL) - total(mu[i] * reward[i], i, FULL))  # fmt: skip
    proof.steps += whole.steps
    small, x = Symbol("s", real=True), IndexedBase("x", real=True)
    moving = exp(total(log(1 + small * x[t]), t, STEPS)) - 1
    slope = proof.differentiate(r"with $r_t = 1 + s x_t$: how $\prod_t r_t - 1$ starts", moving, small, Integer(0))
    surrogate = claims["surrogate"].replace(
        lambda e: e.is_Indexed and e.base == r, lambda e: 1 + small * x[e.indices[0]]
    )
    start = proof.differentiate("and the surrogate", surrogate, small, Integer(0))
    proof.equal("alike: the correction is of second order", slope, start)
    _penalties(proof, claims)
    return proof.steps


def _penalties(proof: Proof, claims: Claims) -> None:
    states = Proof(FACTS)
    states.equal(r"at one state the mean of $|r - 1|$ under $\mu$ is twice the TV distance",
                 total(mu[i] * Abs(pi[i] / mu[i] - 1), i, FULL),
                 2 * total(Abs(pi[i] - mu[i]), i, FULL) / 2)  # fmt: skip
    states.equal(r"a product of ratios has mean 1 under $\mu$", total(mu[i] * (pi[i] / mu[i]), i, FULL), Integer(1))
    proof.steps += states.steps
    early, late = Symbol("x", positive=True), Symbol("y", positive=True)
    proof.equal(
        r"so the mean of $|1 - \rho_t|$ is at most 2, and at most $2 \tau$ per later step, as one more factor adds "
        r"$x (y - 1)$ to what $x - 1$ was and $x$ has mean 1, given the response up to $t$",
        early * late - 1,
        (early - 1) + early * (late - 1),
    )
    later = T - 1 - t
    proof.equal(
        r"quadratic penalty: $\xi$ times the sum over $t$ of $2 \tau$ times $2 \tau$ per later step",
        xi * summation(2 * tau * 2 * tau * later, (t, *STEPS)),
        claims["quadratic"],
    )
    proof.equal(r"linear penalty: $\xi$ times the sum over $t$ of $2 d_t$ times 2",
                total(xi * 2 * d[t] * 2, t, STEPS), claims["linear"])  # fmt: skip


@dataclass(frozen=True)
class Tree:
    """Policies mu and pi at every prefix, and a reward per response of `horizon` tokens."""

    horizon: int
    mu: dict[tuple[int, ...], Vector]
    pi: dict[tuple[int, ...], Vector]
    reward: dict[tuple[int, ...], mpf]

    def responses(self) -> Iterator[tuple[int, ...]]:
        return itertools.product(range(len(self.mu[()])), repeat=self.horizon)

    def ratios(self, response: tuple[int, ...]) -> Vector:
        prefixes = [(response[:place], token) for place, token in enumerate(response)]
        return [self.pi[prefix][token] / self.mu[prefix][token] for prefix, token in prefixes]

    def value(self, policy: dict[tuple[int, ...], Vector]) -> mpf:
        """J: the mean reward of a policy."""
        return fsum(self.reward[y] * _probability(policy, y) for y in self.responses())

    def between(self, share: mpf) -> dict[tuple[int, ...], Vector]:
        """mu moved by a share of pi - mu at every state."""
        return {s: [p + share * (q - p) for p, q in zip(row, self.pi[s], strict=True)] for s, row in self.mu.items()}


def _probability(policy: dict[tuple[int, ...], Vector], response: tuple[int, ...]) -> mpf:
    chance = mpf(1)
    for place, token in enumerate(response):
        chance *= policy[response[:place]][token]
    return chance


def _trees(seed: int, count: int) -> Iterator[Tree]:
    rng = random.Random(seed)

    def policy(size: int) -> Vector:
        return softmax([mpf(rng.gauss(0, 1)) for _ in range(size)])

    for case in range(count):
        horizon, size = ((1, 3), (2, 3), (3, 2), (2, 2))[case % 4]
        prefixes = [s for length in range(horizon) for s in itertools.product(range(size), repeat=length)]
        mus, pis = ({s: policy(size) for s in prefixes} for _ in range(2))
        if case % 4 == 3:  # the same two policies at every state, and the reward that makes the correction largest
            mus, pis = ({s: rows[()] for s in prefixes} for rows in (mus, pis))
        tree = Tree(
            horizon, mus, pis, {y: mpf(rng.gauss(0, 1)) for y in itertools.product(range(size), repeat=horizon)}
        )
        if case % 4 == 3:
            extreme = {y: sign((tree.ratios(y)[0] - 1) * (1 - tree.ratios(y)[1])) for y in tree.responses()}
            tree = Tree(horizon, mus, pis, extreme)
        yield tree


def certify(claims: Claims, dps: int, seed: int) -> Certificate:
    def compare(check: Comparison, tree: Tree) -> None:
        surrogate = correction = mpf(0)
        steps = range(tree.horizon)
        distance = [mpf(0)] * tree.horizon  # d_t
        doubled = mpf(0)
        for y in tree.responses():
            ratios, chance = tree.ratios(y), _probability(tree.mu, y)
            later = [mpf(1)] * tree.horizon
            for place in reversed(steps[:-1]):
                later[place] = later[place + 1] * ratios[place + 1]
            known = {"r": ratios, "rho": later, "T": tree.horizon}
            surrogate += chance * tree.reward[y] * evaluate(claims["surrogate"], known)
            correction += chance * tree.reward[y] * evaluate(claims["correction"], known)
            for place in steps:
                rows = zip(tree.mu[y[:place]], tree.pi[y[:place]], strict=True)
                distance[place] += chance * fsum(abs(p - q) for p, q in rows) / 2
                doubled += 2 * chance * abs(ratios[place] - 1)
        gain = tree.value(tree.pi) - tree.value(tree.mu)
        check.equal(surrogate, check.slope(lambda h: tree.value(tree.between(h))), "surrogate: slope of J at mu")
        check.equal(surrogate - correction, gain, "J(pi) - J(mu)")
        largest = max(abs(x) for x in tree.reward.values())
        worst = max(fsum(abs(p - q) for p, q in zip(row, tree.pi[s], strict=True)) / 2 for s, row in tree.mu.items())
        known = {"T": tree.horizon, "xi": largest, "tau": worst, "d": distance}
        quadratic, linear = evaluate(claims["quadratic"], known), evaluate(claims["linear"], known)
        check.at_most(abs(gain - surrogate), quadratic, "quadratic penalty")
        check.at_most(abs(gain - surrogate), linear, "linear penalty")
        check.equal(linear, largest * doubled, "linear penalty: twice the mean of |r - 1|, summed over the steps")
        if all(row == tree.mu[()] for row in tree.mu.values()) and tree.horizon == 2:
            check.equal(quadratic, abs(gain - surrogate), "quadratic penalty reached at T = 2")

    return certificate(dps, _trees(seed, 16), compare)


def _claims() -> tuple[Expr, Expr]:
    return total(r[t] - 1, t, STEPS), total((r[t] - 1) * (1 - rho[t]), t, STEPS)


THEOREM = register(
    Theorem(
        name="finite_horizon",
        title="Policy improvement over a finite horizon",
        statement=(
            r"With $\gamma = 1$, horizon $T$ and a reward $R$ per response, $J(\pi) - J(\mu)$ is the mean under $\mu$ "
            r"of $R$ times the first claim (the surrogate) minus that of $R$ times the second (the correction), where "
            r"$\rho_t$ is the product of the ratios after step $t$. The correction is of second order. Its size is at "
            r"most the third claim, $\xi = \max |R|$, $\tau$ the largest TV distance of any state; and at most the "
            r"fourth, $d_t$ the mean TV distance at step $t$. Means of $|1 - \rho_t|$ are taken given the response up "
            r"to $t$. The proof has the triangle inequality and the induction over steps in words; that the third "
            r"claim is reached for $T = 2$ is seen in numbers."
        ),
        source="arXiv 2602.04879, Theorems 3.1 and 3.2",
        mark="F",
        assumptions=(
            r"finitely many responses, all of $T$ tokens (shorter ones padded by a certain end token); $\mu > 0$",
            r"$r_t > 0$; steps are numbered from 0",
        ),
        claims=(
            Claim("surrogate", r"\text{surrogate}/R", _claims()[0]),
            Claim("correction", r"\text{correction}/R", _claims()[1]),
            Claim("quadratic", r"\text{quadratic penalty}", 2 * xi * T * (T - 1) * tau**2),
            Claim("linear", r"\text{linear penalty}", 4 * xi * total(d[t], t, STEPS)),
        ),
        prover=prove,
        certifier=certify,
        unproved=(
            r"the triangle inequality and the induction over steps are in words, given the response up to $t$; that "
            r"the quadratic penalty is reached for $T = 2$ is numeric only"
        ),
    )
)
