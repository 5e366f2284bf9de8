"""Which tokens a criterion calls outward: a step on them would push pi farther from mu.

A criterion is named `ratio`, a tail rule, `full` (the whole vocabulary), `certified` (forward KL: decides where the
interval excludes 0, else as the ratio), `finite_step` (forward KL: the sign of the exact change) or `random`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from eval.files import InputError
from eval.tokens.records import Record
from methods.directions import TAIL_RULES
from methods.tokens import schema

Flags = NDArray[np.bool_]

PREDICTIVE = ("full", *TAIL_RULES)
FORWARD_KL_ONLY = ("certified", "finite_step")
# The step of the finite-step criterion, in units of A min(r, C); the record has others.
STEP = 0.3


def names(measure: str) -> tuple[str, ...]:
    """Criteria that exist for a measure, `ratio` left out: it is what the others are compared with."""
    own = FORWARD_KL_ONLY if measure == "forward_kl" else ()
    return (*PREDICTIVE, *own, "random")


def ratio_outward(record: Record) -> Flags:
    """A (r - 1) > 0, as PPO and DPPO read it."""
    return _outward(record["advantage"], record["logp_pi"] - record["logp_mu"])


def outward(
    record: Record, criterion: str, measure: str, generator: np.random.Generator, outside: Flags | None = None
) -> Flags:
    """The criterion's verdict for each token; `generator` and `outside` are for `random` alone.

    outside: the tokens whose rate of disagreement the control has; by default all. Raises InputError for an unknown
    criterion.
    """
    if criterion == "ratio":
        return ratio_outward(record)
    if criterion in PREDICTIVE:
        return _outward(record["advantage"], record[schema.direction(measure, criterion)])
    if criterion == "certified" and measure == "forward_kl":
        low, high = record["certificate_low"], record["certificate_high"]
        decided = certificate_decides(record)
        return np.where(decided, _outward(record["advantage"], low + high), ratio_outward(record))
    if criterion == "finite_step" and measure == "forward_kl":
        return np.asarray(record[schema.finite_step(STEP)] > 0)
    if criterion == "random":
        return _random(record, measure, generator, np.full(len(record), True) if outside is None else outside)
    raise InputError(f"criterion {criterion!r} for {measure}: allowed are ratio, {', '.join(names(measure))}")


def certificate_decides(record: Record) -> Flags:
    """The interval of the full-vocabulary direction excludes 0."""
    return np.asarray((record["certificate_low"] > 0) | (record["certificate_high"] < 0))


def _outward(advantage: NDArray[np.floating], direction: NDArray[np.floating]) -> Flags:
    # Signs are multiplied: a product of two small numbers may underflow.
    return np.asarray(np.sign(advantage) * np.sign(direction) > 0)


def _random(record: Record, measure: str, generator: np.random.Generator, outside: Flags) -> Flags:
    """The ratio's verdict, flipped by chance as often, either way, as the full prediction differs from it outside.

    Its gap in unsafe-keep is not 0 but what the ratio knows: P(D rises | ratio outward) - P(D rises | ratio inward).
    """
    ratio = ratio_outward(record)
    predicted = _outward(record["advantage"], record[schema.direction(measure, "full")])
    sides = [outside & (ratio == side) for side in (False, True)]
    rates = [np.mean(predicted[side] != ratio[side]) if side.any() else 0.0 for side in sides]
    flips = generator.random(len(ratio)) < np.where(ratio, rates[1], rates[0])
    return np.asarray(ratio ^ flips)
