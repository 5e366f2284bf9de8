"""Rows of the open questions: numbers, and two sentences out of them.

The first has the effect with its interval and seeds; the second what follows from it, and what it does not cover.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eval.statistics import not_a_test
from eval.tokens.contrasts import Estimate

COLUMNS = (
    "question",
    "axis",
    "contrast",
    "kind",  # difference | mean | share | smallest (a K, not a rate)
    "quantity",
    "criterion",
    "value",
    "low",
    "high",
    "level_a",
    "level_b",
    "n_seeds",
    "resampled",
    "answer",
)
QUANTITIES = {
    "gap": "gap in unsafe-keep",
    "accuracy_gain": "gain in sign accuracy",
    "wrong_sign": "share of wrong signs",
    "sign_accuracy": "sign accuracy",
    "share_of_failures": "share of failures",
}
# Where the prediction is better than the ratio: a gap below 0 (fewer of its kept tokens move away), a gain above.
BETTER = {"gap": -1, "accuracy_gain": 1}
CRITERIA = {"aggregated": "aggregated tail", "full": "whole vocabulary"}
# Below it nothing is concluded from rates of this study: a seed's counts are small and far from normal.
FEW = 6


@dataclass(frozen=True)
class Question:
    """A question, what is varied for it, and what its answer does not cover."""

    name: str
    axis: str
    not_covered: str


def difference(
    question: Question, sides: tuple[str, str], quantity: str, criterion: str, found: Estimate
) -> dict[str, Any]:
    """The row of a difference between two named sides."""
    contrast, compared = f"{sides[0]} against {sides[1]}", quantity in BETTER
    a, b = (points(value, signed=compared) for value in found.levels)
    first = (
        f"{_capital(contrast)}: {_describe_quantity(quantity, criterion)} is {a} against {b} {_unit(compared)}, "
        f"a difference of {_interval(found, signed=True)}."
    )
    side = _side(found)
    if side == 0:
        second = _describe_undecided(found)
    elif compared:
        better = sides[0] if side == BETTER[quantity] else sides[1]
        # Where the ratio is ahead on both sides, the better one is no gain.
        behind = all(value * BETTER[quantity] < 0 for value in found.levels)
        what = "loses less to the ratio" if behind else "gains more over the ratio"
        second = f"The interval excludes 0: the prediction {what} with {better}"
    else:
        second = f"The interval excludes 0: it is larger with {sides[0] if side > 0 else sides[1]}"
    return _row(question, contrast, "difference", quantity, criterion, found, f"{first} {second}")


def level(
    question: Question, subject: str, kind: str, quantity: str, criterion: str, found: Estimate
) -> dict[str, Any]:
    """The row of a mean or a share. A gap or a gain is held against 0; a share is not: it cannot be below."""
    compared = quantity in BETTER
    first = f"{_capital(subject)}: {_describe_quantity(quantity, criterion)} is {_interval(found, signed=compared)}."
    side = _side(found)
    if not compared and not math.isnan(found.interval.low):
        half = 50 * (found.interval.high - found.interval.low)
        second = f"The seeds fix it to about {half:.1f} points either way"
    elif side == 0:
        second = _describe_undecided(found)
    else:
        more = "the prediction sees more of the truth than the ratio"
        second = f"The interval excludes 0: {more if side == BETTER[quantity] else more.replace('more', 'less')}"
    return _row(question, subject, kind, quantity, criterion, found, f"{first} {second}")


def smallest(question: Question, criterion: str, found: Mapping[str, Estimate]) -> dict[str, Any]:
    """The row of the smallest K from which on no gap is told from that of V, out of each K's difference, ascending.

    A K without an interval shows nothing and cannot be that K; where none has one the value is nan.
    """
    told = [k for k, estimate in found.items() if _side(estimate)]
    unknown = [k for k, estimate in found.items() if math.isnan(estimate.interval.low)]
    excluded = [place for place, k in enumerate(found) if k in told or k in unknown]
    after = list(found)[excluded[-1] + 1 :] if excluded else list(found)
    k = math.nan if len(unknown) == len(found) else after[0] if after else "V"
    n = min(estimate.interval.n for estimate in (found[k] for k in after or found))
    at = f"; at {k} the difference lies in {_limits(found[after[0]])} points" if after else ""
    listed = [("Told from V", told), *([("no interval", unknown)] if unknown else [])]
    second = "; ".join(f"{what}: {', '.join(f'K = {k}' for k in ks) or 'no K'}" for what, ks in listed)
    if k == k:
        first = f"From K = {k} on {_describe_quantity('gap', criterion)} is not told from that of V ({n} seeds{at})."
    else:
        first = f"From which K on {_describe_quantity('gap', criterion)} is told from that of V takes more seeds."
    named = {
        "question": question.name,
        "axis": question.axis,
        "contrast": "smallest K from which on none is told from V",
    }
    # The value is a K, not a rate, and has no interval.
    values = {"value": k} | dict.fromkeys(("low", "high", "level_a", "level_b"))
    answer = f"{first} {second}; not told apart is not equal; not covered: {question.not_covered}."
    kept = {"n_seeds": n, "resampled": "paired seeds", "answer": answer}
    return named | {"kind": "smallest", "quantity": "gap", "criterion": criterion} | values | kept


def points(share: float, signed: bool = True) -> str:
    """A share in points: `-2.7`, `+0.0`; without a sign `64.0`."""
    text = f"{100 * share:+.1f}" if signed else f"{100 * share:.1f}"
    return text.replace("-0.0", "+0.0") if float(text) == 0 else text


def _row(
    question: Question, contrast: str, kind: str, quantity: str, criterion: str, found: Estimate, text: str
) -> dict[str, Any]:
    it = found.interval
    fewest = min(found.sizes)
    few = f" (with {fewest} seeds a description)" if fewest < FEW and not math.isnan(it.low) else ""
    levels = (*found.levels, math.nan, math.nan)[:2]
    values = {"value": it.mean, "low": it.low, "high": it.high, "level_a": levels[0], "level_b": levels[1]}
    named = {"question": question.name, "axis": question.axis, "contrast": contrast, "kind": kind}
    kept = {
        "n_seeds": it.n,
        "resampled": found.resampled,
        "answer": f"{text}{few}; not covered: {question.not_covered}.",
    }
    return named | {"quantity": quantity, "criterion": criterion} | values | kept


def _describe_quantity(quantity: str, criterion: str) -> str:
    shown = CRITERIA.get(criterion, criterion)
    return f"the {QUANTITIES[quantity]}" + (f" ({shown})" if shown else "")


def _interval(found: Estimate, signed: bool) -> str:
    it = found.interval
    seeds = " + ".join(map(str, found.sizes))
    limits = "no interval" if math.isnan(it.low) else f"95 %: {_limits(found, signed)}"
    if len(it.values) > 1:
        limits = f"the values {' and '.join(points(value, signed) for value in it.values)}"
    return f"{points(it.mean, signed)} {_unit(signed)} ({limits}; {seeds} {found.resampled})"


def _limits(found: Estimate, signed: bool = True) -> str:
    return " to ".join(points(limit, signed) for limit in (found.interval.low, found.interval.high))


def _unit(compared: bool) -> str:
    return "points" if compared else "%"


def _describe_undecided(found: Estimate) -> str:
    low, high = found.interval.low, found.interval.high
    if math.isnan(low):
        return f"{_capital(not_a_test(min(found.sizes)))}, so nothing follows"
    most = 100 * max(-low, high) + 0.0  # no negative zero
    return f"The interval holds 0: no effect is shown, and one of up to {most:.1f} points is not excluded"


def _side(found: Estimate) -> int:
    """-1 or 1 where the interval lies below or above 0; 0 where it holds 0 or there is none."""
    return int(found.interval.low > 0) - int(found.interval.high < 0)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
