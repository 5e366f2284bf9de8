"""A word for each claim. The rules are those of docs/verdicts.md; none looks at another claim except Holm's correction.

Two families are corrected (Holm 1979) over the testable primary claims: p of the claim, and p of its opposite; ours [N]
are families of their own. A word of support or contradiction takes an adjusted one-sided p of at most LEVEL.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from eval.claims.claims import Claim
from eval.claims.intervals import Estimate, above, outside, rate_above, seeds_for, within

LEVEL, NO_EFFECT = 0.025, 0.05
SAME_SIZE, SAME_RATIO = (1 / 2, 2.0), (2 / 3, 3 / 2)
# Of a normal: the paper's number and ours are both estimates.
DEVIATION = 1.959964
REPLICATED, DIRECTION, CONTRADICTED = "replicated", "direction only", "contradicted"
UNDERPOWERED, NOT_TESTABLE = "underpowered", "not testable"
WORDS = (REPLICATED, DIRECTION, CONTRADICTED, UNDERPOWERED, NOT_TESTABLE)
OWN_WORDS = {
    REPLICATED: "supported",
    DIRECTION: "open",
    CONTRADICTED: "not supported",
    UNDERPOWERED: "open",
    NOT_TESTABLE: NOT_TESTABLE,
}


@dataclass(frozen=True)
class Verdict:
    """support, against: unadjusted one-sided p, nan where the claim is not testable; word: from the adjusted ones."""

    claim: Claim
    estimate: Estimate
    support: float
    against: float
    word: str
    note: str


def p_values(claim: Claim, estimate: Estimate) -> tuple[float, float]:
    """(p of the claim, p of its opposite), one-sided, unadjusted; nan where it is not testable."""
    if not estimate.testable:
        return math.nan, math.nan
    if claim.kind == "rate":
        assert estimate.counts is not None
        part, whole, other, others = estimate.counts
        return rate_above(estimate.counts), rate_above((other, others, part, whole))
    if claim.kind == "ratio":
        bounds = claim.paper_value * SAME_RATIO[0], claim.paper_value * SAME_RATIO[1]
        return within(estimate, *bounds), outside(estimate, *bounds)
    if claim.kind == "equivalence":
        return within(estimate, -claim.margin, claim.margin), outside(estimate, -claim.margin, claim.margin)
    p = above(estimate, -claim.margin if claim.kind == "at_least_as_good" else 0.0)
    return (p, 1.0 - p) if claim.side > 0 else (1.0 - p, p)


def holm(ps: Sequence[float]) -> list[float]:
    """Adjusted p, in the order given: max over j <= i of (m - j + 1) p_(j), at most 1; nan stays and counts nowhere."""
    order = sorted((place for place, p in enumerate(ps) if not math.isnan(p)), key=lambda place: ps[place])
    adjusted, highest = [math.nan] * len(ps), 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - rank) * ps[place]))
        adjusted[place] = highest
    return adjusted


def word(claim: Claim, estimate: Estimate, support: float, against: float) -> str:
    """From adjusted p of the claim and of its opposite. Support goes first: what is there is no "no effect"."""
    if math.isnan(support):
        return NOT_TESTABLE
    if support <= LEVEL:
        return REPLICATED if has_size(claim, estimate) else DIRECTION
    if against <= LEVEL or (claim.kind == "difference" and _no_effect(claim, estimate)):
        return CONTRADICTED
    return UNDERPOWERED


def has_size(claim: Claim, estimate: Estimate) -> bool:
    """The size is the paper's: half to twice its number, and no further from it than both errors allow; at least the
    margin where it has none. Equivalence, "at least as good" and a ratio have their size in the test."""
    if claim.kind == "rate":
        assert estimate.counts is not None
        part, whole, other, others = estimate.counts
        return part / whole - other / others >= claim.margin
    if claim.kind != "difference":
        return True
    if math.isnan(claim.paper_value):
        return claim.side * estimate.value >= claim.margin
    near = True
    if not math.isnan(claim.paper_error):
        near = abs(estimate.value - claim.paper_value) <= DEVIATION * math.hypot(estimate.error, claim.paper_error)
    return near and SAME_SIZE[0] <= estimate.value / claim.paper_value <= SAME_SIZE[1]


def _no_effect(claim: Claim, estimate: Estimate) -> bool:
    """The 90 % interval lies within the margin: no effect that matters."""
    return within(estimate, -claim.margin, claim.margin) <= NO_EFFECT


def decide(claims: Sequence[Claim], estimates: Sequence[Estimate]) -> list[tuple[float, float, str]]:
    """(unadjusted p of the claim, of its opposite, word of WORDS) for each claim, in order.

    Claims that are not primary have unadjusted p: their rows explore.
    """
    ps = [p_values(claim, estimate) for claim, estimate in zip(claims, estimates, strict=True)]
    adjusted = list(ps)
    for own in (False, True):
        places = [i for i, claim in enumerate(claims) if claim.primary and claim.own == own]
        support, against = (holm([ps[i][side] for i in places]) for side in (0, 1))
        for place, pair in zip(places, zip(support, against, strict=True), strict=True):
            adjusted[place] = pair
    return [
        (*raw, word(claim, estimate, *pair))
        for claim, estimate, raw, pair in zip(claims, estimates, ps, adjusted, strict=True)
    ]


def judge(claims: Sequence[Claim], estimates: Sequence[Estimate]) -> list[Verdict]:
    """A verdict for each claim, in order, with its note; ours [N] in words of their own."""
    return [
        Verdict(claim, estimate, support, against, OWN_WORDS[said] if claim.own else said, _note(claim, estimate, said))
        for claim, estimate, (support, against, said) in zip(claims, estimates, decide(claims, estimates), strict=True)
    ]


def _note(claim: Claim, estimate: Estimate, said: str) -> str:
    parts = [estimate.note]
    if claim.kind == "difference" and estimate.testable and not math.isnan(claim.paper_value):
        ends = sorted(end / claim.paper_value for end in (estimate.low, estimate.high))
        parts.append(f"{estimate.value / claim.paper_value:.2g} [{ends[0]:.2g}, {ends[1]:.2g}] times the paper's size")
    elif said == DIRECTION and claim.kind == "difference":
        parts.append(f"smaller than the margin, {claim.margin:.3g}")
    if said == CONTRADICTED and claim.kind == "difference" and _no_effect(claim, estimate):
        parts.append(f"no effect that matters: the 90 % interval lies within {claim.margin:.3g} of 0")
    if said == UNDERPOWERED and estimate.counts is None:
        margin = claim.paper_value / 3 if claim.kind == "ratio" else claim.margin
        parts.append(seeds_for(estimate, margin))
    elif said == UNDERPOWERED:
        parts.append("an exact test needs 5 of 10 against none, or 5 of 20, for a word")
    if not claim.primary:
        parts.append("explores: p not adjusted")
    return "; ".join(filter(None, parts))
