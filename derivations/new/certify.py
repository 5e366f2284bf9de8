"""Numbers about a user's divergence, at 50 digits on random policies: is it one, and is what was derived true?

Finite differences walk the parsed text, never SymPy's expressions, so the two check each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from mpmath import fsum, isfinite, log, mp, mpc, mpf, nstr
from sympy import Expr

from derivations.new.divergence import Divergence, p
from derivations.new.parser import ExpressionError
from derivations.new.study import G, Study
from derivations.numeric import (
    Certificate,
    Comparison,
    Pair,
    certificate,
    evaluate,
    merge_tail,
    precision,
    random_pairs,
    retained,
    softmax,
)
from derivations.tails import COLLISION, c2

SIZES = (2, 3, 7)


@dataclass(frozen=True)
class Findings:
    """What random policies say.

    negative: the pair with the least D, if that is below zero. reduced_above: a pair on which merging the tail raised
    D. ratio_exception: a token whose local term has not the sign of r - 1. tokens: how many were looked at.
    """

    negative: str | None
    reduced_above: str | None
    ratio_exception: str | None
    tokens: int


def refuse_unless_zero_at_equality(given: Divergence, dps: int, seed: int) -> None:
    """Raises ExpressionError if D(mu, mu) is not 0 or not defined for some random mu, or D is 0 everywhere."""

    def refuse(what: str) -> ExpressionError:
        return ExpressionError(f"no divergence: {what}", given.source, 0, len(given.source))

    with precision(dps):
        slack, apart = mpf(10) ** (-dps // 2), False
        for pair in random_pairs(seed, 4, SIZES):
            value = given.number(pair.mu, pair.mu)
            if not abs(value) <= slack:
                raise refuse(f"it is {nstr(value, 3)} where pi = mu = {_shown(pair.mu)}, must be 0")
            apart = apart or abs(given.number(pair.mu, pair.pi)) > slack
        if not apart:
            raise refuse("it is 0 whatever pi is")


def look(study: Study, dps: int, seed: int) -> Findings:
    """Search for exceptions to what one expects of a divergence and of the ratio criterion; the clearest are kept."""
    given = study.divergence
    negative, above, exception = _Clearest(), _Clearest(), _Clearest()
    tokens = 0
    with precision(dps):
        for pair in random_pairs(seed, 24, SIZES):
            mu, pi = pair.mu, pair.pi
            at = f"mu = {_shown(mu)}, pi = {_shown(pi)}"
            value = given.number(mu, pi)
            negative.offer(-value, f"D = {nstr(value, 3)} at {at}")
            if len(mu) > 2:
                merged = given.number(merge_tail(mu, 1), merge_tail(pi, 1))
                above.offer(merged - value, f"{nstr(merged, 3)} > {nstr(value, 3)} at {at}, S = {{0}}")
            for k in range(len(mu)):
                tokens += 1
                local = evaluate(study.local, {"mu": mu, "pi": pi, "k": k, "n": len(mu)})
                shift, ratio = pi[k] - mu[k], nstr(pi[k] / mu[k], 5)
                if _sign(local) * _sign(shift) < 0:
                    exception.offer(
                        min(abs(shift), abs(local)), f"r = {ratio}, L_k = {nstr(local, 3)} at k = {k}, {at}"
                    )
    return Findings(negative.text, above.text, exception.text, tokens)


class _Clearest:
    """The exception of the largest size, if one is above what rounding could make."""

    def __init__(self) -> None:
        self.size, self.text = mpf(10) ** (-mp.dps // 2), None  # type: tuple[mpf, str | None]

    def offer(self, size: mpf, text: str) -> None:
        if size > self.size:
            self.size, self.text = size, text


def threshold_tokens(study: Study, dps: int, seed: int) -> int:
    """At how many tokens the local term was seen to have the sign of r - r*; 0 if it had not at one of them."""
    if study.threshold is None:
        return 0
    tokens = 0
    with precision(dps):
        slack = mpf(10) ** (-dps // 2)  # no sign is to be read at the threshold itself
        for pair in random_pairs(seed, 12, SIZES):
            mu, pi = pair.mu, pair.pi
            known = {"mu": mu, "pi": pi, "n": len(mu)}
            mean = evaluate(study.mean, known)
            for k in range(len(mu)):
                place = mpc(evaluate(study.threshold.value, {**known, str(G): mean, str(p): mu[k]}))
                if abs(place.imag) > slack:  # a branch that is none for this mean
                    return 0
                beyond = pi[k] / mu[k] - place.real
                if abs(beyond) > slack and _sign(evaluate(study.local, {**known, "k": k})) != _sign(beyond):
                    return 0
                tokens += 1
    return tokens


def certify(study: Study, dps: int, seed: int) -> Certificate:
    """Finite differences of D and of its reduced form under every tail rule. Raises CertificateError."""
    number = study.divergence.number

    def against(check: Comparison, pair: Pair, claim: Expr, names: dict[str, object], what: str,
                measure: Callable[[Sequence[mpf]], mpf], along: Sequence[mpf] | None = None) -> None:  # fmt: skip
        check.equal(evaluate(claim, names), check.along(pair, along or pair.step, measure), what)

    def compare(check: Comparison, pair: Pair) -> None:
        n, mu = len(pair.mu), pair.mu
        names = {"mu": mu, "pi": pair.pi, "k": pair.k, "n": n}
        against(check, pair, study.local + study.global_, names, "local + global term", lambda x: number(mu, x))
        m = n - 1 if n < 4 else (n + 1) // 2
        if pair.k >= m:
            return
        known = {**retained(pair, m), "n": n}
        seen = {**known, "c2": fsum(x * x for x in pair.pi[m:])}
        merged = merge_tail(mu, m)
        against(check, pair, study.tail, seen, "tail rule collision", lambda x: number(merged, merge_tail(x, m)))
        # The same masses with the tail as one logit, as a flat tail of n - m tokens, and as one of endless many.
        one = Pair(merged, [*pair.logits[:m], _merged_logit(pair, m)], pair.k)
        for rule, size in (("aggregated", 1), ("uniform", n - m), ("none", 10**dps)):
            claim = study.tail.xreplace({c2: COLLISION[rule]})
            along = [*one.step[:-1], -one.pi[-1] / size]
            against(check, one, claim, known, f"tail rule {rule}", lambda x: number(merged, x), along)

    return certificate(dps, _usable(study.divergence, seed), compare)


def _merged_logit(pair: Pair, m: int) -> mpf:
    """The logit of one token that holds the tail's whole mass."""
    pi = pair.pi
    return pair.logits[0] + log(fsum(pi[m:]) / pi[0])


def _usable(given: Divergence, seed: int) -> Iterator[Pair]:
    for pair in random_pairs(seed, 8, SIZES):
        if isfinite(given.number(pair.mu, softmax(pair.logits))):
            yield pair


def _sign(x: mpf) -> int:
    return (x > 0) - (x < 0)


def _shown(policy: Sequence[mpf]) -> str:
    return "(" + ", ".join(nstr(x, 3) for x in policy) + ")"
