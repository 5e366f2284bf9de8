"""Counterexamples, found by a search: the smallest policies at which a criterion reads the wrong direction."""

from __future__ import annotations

from dataclasses import dataclass

from mpmath import fsum, log, mpf
from mpmath import sign as numeric_sign
from sympy import Integer, sign

from derivations import search
from derivations.numeric import DIVERGENCES, Certificate, Comparison, Pair, certificate, evaluate, merge_tail
from derivations.proof import Proof, ProofError, Step
from derivations.theorem import Claim, Claims, Theorem, register


@dataclass(frozen=True)
class Case:
    """A measure and a criterion, the least number of tokens at which it can fail, and how many are retained."""

    measure: str
    criterion: str
    tokens: int = 3
    retained: int = 3

    @property
    def label(self) -> str:
        return f"{self.measure}, {self.criterion}"

    def found(self) -> search.Example:
        example = search.smallest(self.measure, self.criterion, self.tokens, self.retained)
        if example is None:
            raise ProofError(f"{self.label}: no counterexample up to denominator {search.LARGEST}")
        return example


_COLUMNS = (
    *(("ratio", 3, 3), ("local", 3, 3)),
    *((rule, 4, 2) for rule in ("none", "aggregated", "uniform", "collision")),
)
_TABLE: dict[str, tuple[int, ...]] = {
    "forward_kl": (7, 0, 5, 6, 8, 8),
    "reverse_kl": (6, 6, 5, 7, 6, 7),
    "tv": (8, 0, 8, 8, 9, 10),
    "jeffreys": (6, 6, 5, 6, 7, 6),
    "js": (6, 6, 5, 6, 7, 6),
    "hellinger2": (6, 6, 5, 6, 7, 6),
    "chi2_pearson": (6, 6, 6, 7, 8, 7),
    "chi2_neyman": (7, 4, 5, 6, 5, 7),
    "l2": (6, 6, 6, 8, 6, 7),
}
#: case -> smallest common denominator of a counterexample; 0 in the table: the local term is the ratio criterion
DENOMINATORS: dict[Case, int] = {
    Case(measure, *column): size
    for measure, sizes in _TABLE.items()
    for column, size in zip(_COLUMNS, sizes, strict=True)
    if size
} | {Case("l2", "merged", 3, 1): 5}


def prove(claims: Claims) -> list[Step]:
    proof = Proof()
    for case in DENOMINATORS:
        example = case.found()
        proof.equal(f"{case.label}: no smaller denominator has one; found {example}",
                    Integer(example.denominator), claims[case.label])  # fmt: skip
    for case in DENOMINATORS:
        seen, truth = search.CRITERIA[case.criterion](case.measure, case.found(), "sympy")
        side = sign(seen)
        proof.greater(f"{case.label}: exact value of the criterion, times its sign", side * seen, Integer(0))
        proof.greater(f"{case.label}: the truth has the other sign", Integer(0), side * truth)
    return proof.steps


def certify(claims: Claims, dps: int, seed: int) -> Certificate:
    def compare(check: Comparison, case: Case) -> None:
        example = case.found()
        check.equal(evaluate(claims[case.label], {}), mpf(example.denominator), f"{case.label}: smallest denominator")
        mu, pi = ([mpf(part) / example.denominator for part in parts] for parts in (example.mu, example.pi))
        state, m, divergence = Pair(mu, [log(p) for p in pi], 0), example.retained, DIVERGENCES[case.measure]
        reduced = merge_tail(mu, m)
        if m < len(mu):
            least = min(mu[1:m], default=mu[0])
            check.at_most(max(mu[m:]), least, f"{case.label}: S is a Top-K and the sampled token")

        def slope(pair: Pair) -> mpf:
            return check.along(pair, pair.step, lambda policy: divergence(pair.mu, policy))

        def exact() -> mpf:
            return check.along(state, state.step, lambda policy: divergence(reduced, merge_tail(policy, m)))

        if case.criterion == "merged":
            check.at_most(divergence(mu, pi), divergence(reduced, merge_tail(pi, m)), "the reduced l2 is larger")
            return
        if case.criterion in ("ratio", "local"):
            local = check.along(state, state.axis(0), lambda policy: divergence(mu, policy))
            seen, truth = local if case.criterion == "local" else pi[0] - mu[0], slope(state)
        elif case.criterion == "collision":
            seen, truth = exact(), slope(state)
        else:
            # The motion of the retained tokens and of a tail whose logit falls by c2 / pi_T, with the rule's c2.
            mass, size = fsum(pi[m:]), len(pi) - m
            fall = {"none": mpf(0), "aggregated": mass, "uniform": mass / size}[case.criterion]
            classes = Pair(reduced, [log(p) for p in merge_tail(pi, m)], 0)
            direction = [*classes.step[:-1], -fall]
            seen = check.along(classes, direction, lambda policy: divergence(reduced, policy))
            truth = exact()
        check.equal(numeric_sign(truth), -numeric_sign(seen), f"{case.label}: opposite signs")

    return certificate(dps, iter(DENOMINATORS), compare)


THEOREM = register(
    Theorem(
        name="counterexamples",
        title="Smallest counterexamples",
        statement=(
            r"For each measure and criterion a search finds the smallest rational policies at which the criterion "
            r"reads the wrong direction, in the sense of the smallest common denominator, given below; the policies "
            r"stand in the proof. Ratio and local term are held against the slope of the measure, with three tokens "
            r"(with two, every measure is binary and the ratio is right). The rules none, aggregated and uniform are "
            r"held against the exact slope of the reduced measure, which is the rule collision, and that against the "
            r"slope over the whole vocabulary; four tokens, two of them retained: the sampled and the likeliest "
            r"other. A mask with any $\delta < D$ flips there. The last case is a reduced l2 that exceeds the full one."
        ),
        source="own derivation",
        mark="N",
        assumptions=(
            r"$\mu$ and $\pi$ are multiples of one fraction $1/N$; ties of the criterion or the slope do not count",
            r"for TV no $\pi_i$ equals $\mu_i$; every retained token but the sampled one is at least as likely under "
            r"$\mu$ as any of the tail",
        ),
        claims=tuple(
            Claim(case.label, rf"N_{{\text{{{case.label.replace('_', ' ')}}}}}", Integer(size))
            for case, size in DENOMINATORS.items()
        ),
        prover=prove,
        certifier=certify,
    )
)
