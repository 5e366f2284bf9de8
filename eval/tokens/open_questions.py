"""What arXiv 2607.10848 left open about its token analysis, as contrasts with their intervals; numbers only.

Forward KL and the unmasked probe of the base setting (`eval.tokens.axes`), radius 0.15 and the truth by the reduced
divergence, unless a contrast says otherwise; K and causes look at the whole vocabulary's
(`eval.tokens.run_tables`). A question whose settings a tier has not is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eval.tokens import axes
from eval.tokens.contrasts import (
    Estimate,
    Group,
    Parts,
    Row,
    Study,
    by_seed,
    difference,
    group_of,
    pool,
    single,
)
from eval.tokens.study import MAIN, RADII
from methods.directions import TAIL_RULES

Found = Iterator[dict[str, Any]]

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
    "n_smaller",  # of the side with fewer seeds
    "resampled",
)


@dataclass(frozen=True)
class Question:
    """A question, what is varied for it, and what its numbers do not cover."""

    name: str
    axis: str
    not_covered: str


# Looked at in every contrast.
MEASURED = tuple((quantity, criterion) for quantity in ("gap", "accuracy_gain") for criterion in ("aggregated", "full"))

K = Question("K", "retained K", "one set outside for all K: each K sees its own")
DELTA = Question("delta", "radius", "training with either radius: both look at the same steps")
AGE = Question("staleness", "age within a run", "age apart from the training step: within a run they move together")
BATCH = Question("mini-batch index", "mini-batch of the step", "the index apart from what earlier ones moved")
PLACE = Question("position", "place in the response", "responses longer than this task's")
MU = Question("mu of the sampled token", "mu", "mu apart from the states in which rare and likely tokens stand")
# Parts of one run's tokens, in their order; those of AGE and BATCH are numbered.
NUMBERED = {AGE: "age ", BATCH: "mini-batch "}
NAMED = {
    PLACE: ("first half of response", "second half of response"),
    MU: ("mu < 0.01", "0.01 <= mu < 0.1", "0.1 <= mu < 0.5", "mu >= 0.5"),
}
SETTINGS = {
    "staleness": Question("staleness", "staleness", "age apart from the policies that a run with this staleness meets"),
    "lr": Question("learning rate", "learning rate", "the rate apart from the length of the probe's step"),
    "precision": Question(
        "precision pair",
        "training / rollout precision",
        "real kernels: precisions are emulated (methods/precision/quantisation.py)",
    ),
}
UPDATE = Question(
    "update", "update taken", "other methods' own updates on the probe's states: each has its own training"
)
CAUSES = "curvature or other tokens"
CAUSE = Question(CAUSES, "cause of a failure", "tokens that are no failures (kept by the full prediction, and D rose)")
APPROXIMATION = Question(CAUSES, "what the sign is read from", "a criterion to use: both are known in hindsight only")
QUESTIONS = (K, DELTA, AGE, BATCH, PLACE, MU, *SETTINGS.values(), UPDATE, CAUSE, APPROXIMATION)
# Of `run_tables.CAUSES`: what the step's curvature did, and what other tokens' gradients did.
SOURCES = {"curvature": ("curvature", "batch_curvature"), "other tokens' gradients": ("reversed", "others")}
CAUSE_TEXTS = {
    "reversed": "the token itself moved against its advantage",
    "curvature": "its own finite step alone raises D",
    "others": "its own step lowers D, the others' raise it to first order",
    "batch_curvature": "only the whole step's curvature raises D",
}
READ_FROM = {"accuracy_own_step": "own finite step", "accuracy_batch_first_order": "whole step to first order"}


def rows(
    seeds: Sequence[Row], sweeps: Sequence[Row], causes: Sequence[Row], identities: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """All rows, with `COLUMNS`; none without a setting of the unmasked probe.

    seeds, sweeps, causes: rows of `eval.tokens.study` and `run_tables`; identities: of one record per setting.
    Raises InputError where a setting is not what `eval.tokens.axes` says.
    """
    study = Study(seeds)
    base = study.base()
    if base is None:
        return []
    found = [
        *_compare_k([row for row in sweeps if group_of(row) == base]),
        *_radius(study, base),
        *_parts(study, base),
    ]
    found += [*_settings(study, base, identities), *_updates(study, base)]
    found += _causes([row for row in causes if group_of(row) == base])
    order = list(dict.fromkeys(row["question"] for row in found))
    known = [row for row in found if row["value"] == row["value"]]  # nan: no seed has it
    return sorted(known, key=lambda row: order.index(row["question"]))


def _compare_k(sweeps: Sequence[Row]) -> Found:
    """K against V: wrong signs (V has none) and the gap; then `smallest`, by tail rule."""
    sizes = [k for k in dict.fromkeys(row["k"] for row in sweeps) if k != "V"]
    whole = {name: by_seed([row for row in sweeps if row["k"] == "V"], name) for name in ("gap", "accuracy_gain")}
    for rule in TAIL_RULES if sizes else ():
        of = {k: [row for row in sweeps if row["k"] == k and row["rule"] == rule] for k in sizes}
        found = {str(k): difference(by_seed(of[k], "gap"), whole["gap"]) for k in sizes}
        if rule == "aggregated":
            for k in sizes:
                sides = (f"K = {k}", "K = V")
                yield _row(K, sides[0], "share", "wrong_sign", rule, single(by_seed(of[k], "wrong_sign")))
                yield _compare(K, sides, "gap", rule, found[str(k)])
                gain = difference(by_seed(of[k], "accuracy_gain"), whole["accuracy_gain"])
                yield _compare(K, sides, "accuracy_gain", rule, gain)
        yield smallest(K, rule, found)


def _radius(study: Study, base: Group) -> Found:
    small, large = RADII[MAIN[0]]
    for quantity, criterion in MEASURED:
        a, b = (study.values(base, quantity, criterion, delta=delta) for delta in (small, large))
        sides = (f"delta {small:g}", f"delta {large:g}")
        yield _compare(DELTA, sides, quantity, criterion, difference(a, b))


def _parts(study: Study, base: Group) -> Found:
    """Numbered parts in two lots, which more seeds have, then the last against the first; named ones likewise."""
    for question, start in NUMBERED.items():
        names = study.numbered_parts(base, start)
        # The oldest rollouts against all younger ones; the later half of the mini-batches against the earlier one.
        cut = len(names) - 1 if question is AGE else (len(names) + 1) // 2
        for a, b in dict.fromkeys([(names[cut:], names[:cut]), (names[-1:], names[:1])]) if len(names) > 1 else ():
            for quantity, criterion in MEASURED:
                yield from _between(study, base, question, {_lot(start, a): a, _lot(start, b): b}, quantity, criterion)
    for question, names in NAMED.items():
        for quantity, criterion in MEASURED:
            # Parts without tokens on which the criteria disagree have no gap.
            there = [
                name for name in names if len(study.values(base, quantity, criterion, (name,))) >= study.half(base)
            ]
            if len(there) > 1:
                sides = {name: (name,) for name in (there[-1], there[0])}
                yield from _between(study, base, question, sides, quantity, criterion)


def _between(
    study: Study, base: Group, question: Question, sides: Mapping[str, Parts], quantity: str, criterion: str
) -> Found:
    """The difference of two lots of one run's tokens, where at least half of the seeds have both."""
    a, b = (study.values(base, quantity, criterion, parts) for parts in sides.values())
    if len(a.keys() & b.keys()) >= study.half(base):
        first, second = sides
        yield _compare(question, (first, second), quantity, criterion, difference(a, b))


def _lot(start: str, names: Parts) -> str:
    """`age 8`, `age 0 to 7`."""
    numbers = [name.removeprefix(start) for name in names]
    return f"{start}{numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else f"{start}{numbers[0]}"


def _settings(study: Study, base: Group, identities: Mapping[str, Mapping[str, Any]]) -> Found:
    """Each setting of an axis against the base, and the mean over all of them."""
    for axis in axes.AXES:
        question = SETTINGS[axis.name]
        groups = {name: (name, *base[1:]) for name in axes.present(axis, identities)}
        groups = {name: group for name, group in groups.items() if group in study.groups}
        if not groups:
            continue
        groups = {base[0]: base, **groups}
        shown = {name: axes.group(axis, name, identities[name]) for name in groups}
        for quantity, criterion in MEASURED:
            values = {name: study.values(groups[name], quantity, criterion) for name in groups}
            for name in list(groups)[1:]:
                found = difference(values[name], values[base[0]])
                yield _compare(question, (shown[name], shown[base[0]]), quantity, criterion, found)
            mean = f"mean over {', '.join(shown.values())}"
            yield _row(question, mean, "mean", quantity, criterion, pool(values))


def _updates(study: Study, base: Group) -> Found:
    """Own updates, of any setting, against the unmasked probe, and their mean."""
    own = [group for group in study.groups if group[1] == "own"]
    for quantity, criterion in MEASURED if own else ():
        probe = study.values(base, quantity, criterion)
        names = {group: f"own update of {group[2]} ({group[0]})" for group in own}
        values = {name: study.values(group, quantity, criterion) for group, name in names.items()}
        for name, mine in values.items():
            yield _compare(UPDATE, (name, "unmasked probe"), quantity, criterion, difference(mine, probe))
        if len(values) > 1:
            yield _row(UPDATE, "mean over the own updates", "mean", quantity, criterion, pool(values))


def _causes(causes: Sequence[Row]) -> Found:
    """Shares of the failures by cause, then how much better a sign is that knows the own step or the whole step."""
    failed = [row for row in causes if row["failed"]]
    if not failed:
        return
    shares = {name: {row["seed"]: row[name] / row["failed"] for row in failed} for name in CAUSE_TEXTS}
    of = {
        source: {seed: sum(shares[name][seed] for name in names) for seed in shares[names[0]]}
        for source, names in SOURCES.items()
    }
    for name, share in (of | {f"{CAUSE_TEXTS[name]} ({name})": share for name, share in shares.items()}).items():
        yield _row(CAUSE, name, "share", "share_of_failures", "", single(share))
    curvature, others = SOURCES
    sides = (others, curvature)
    yield _compare(CAUSE, sides, "share_of_failures", "", difference(of[others], of[curvature]))
    predicted = by_seed(causes, "accuracy_predicted")
    for column, name in READ_FROM.items():
        found = difference(by_seed(causes, column), predicted)
        yield _compare(APPROXIMATION, (name, "full prediction"), "sign_accuracy", "", found)


def _compare(
    question: Question, sides: tuple[str, str], quantity: str, criterion: str, found: Estimate
) -> dict[str, Any]:
    """The row of a difference, the first of two named sides minus the second."""
    return _row(question, f"{sides[0]} against {sides[1]}", "difference", quantity, criterion, found)


def smallest(question: Question, criterion: str, found: Mapping[str, Estimate]) -> dict[str, Any]:
    """The row of the smallest K from which on no interval of the gap's difference to V excludes 0.

    found: by K, ascending, the difference to V. A K without an interval shows nothing and cannot be that K; "V" where
    no K is, nan where none has an interval. Not to tell two apart does not make them equal.
    """
    unknown = [k for k, estimate in found.items() if math.isnan(estimate.interval.low)]
    apart = [k for k, estimate in found.items() if estimate.interval.low > 0 or estimate.interval.high < 0]
    excluded = [place for place, k in enumerate(found) if k in apart or k in unknown]
    after = list(found)[excluded[-1] + 1 :] if excluded else list(found)
    seeds = min(found[k].interval.n for k in after or found)
    return {
        "question": question.name,
        "axis": question.axis,
        "contrast": "smallest K from which on the gap's interval against K = V holds 0",
        "kind": "smallest",
        "quantity": "gap",
        "criterion": criterion,
        # A K, not a rate; it has no interval.
        "value": math.nan if len(unknown) == len(found) else after[0] if after else "V",
        **dict.fromkeys(("low", "high", "level_a", "level_b")),
        "n_seeds": seeds,
        "n_smaller": seeds,
        "resampled": "paired seeds",
    }


def _row(
    question: Question, contrast: str, kind: str, quantity: str, criterion: str, found: Estimate
) -> dict[str, Any]:
    interval = found.interval
    first, second = (*found.levels, math.nan, math.nan)[:2]
    return {
        "question": question.name,
        "axis": question.axis,
        "contrast": contrast,
        "kind": kind,
        "quantity": quantity,
        "criterion": criterion,
        "value": interval.mean,
        "low": interval.low,
        "high": interval.high,
        "level_a": first,
        "level_b": second,
        "n_seeds": interval.n,
        "n_smaller": min(found.sizes),
        "resampled": found.resampled,
    }
