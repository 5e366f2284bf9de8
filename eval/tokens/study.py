"""Per-seed rows of the token study out of records: rates by criterion, measure, radius, truth and subset.

Rows are long and tidy; `eval.tokens.summary` turns them into means over seeds with intervals and tests.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from eval.files import format_cell
from eval.tokens.criteria import Flags, certificate_decides, names, outward, ratio_outward
from eval.tokens.rates import rates
from eval.tokens.records import RUN, Record, read
from methods.tokens import schema

# The papers' radii for the forward KL and the TV; the reverse KL has none of its own.
RADII = {"forward_kl": (0.05, 0.15), "tv": (0.15, 0.2), "reverse_kl": (0.05, 0.15)}
MAIN = ("forward_kl", 0.15)
TRUTHS = ("reduced", "full")
# The rows that figures, verdicts and questions look at: measure and radius of the paper, the truth that a mask sees.
MAIN_FILTER: dict[str, Any] = {"measure": MAIN[0], "delta": MAIN[1], "truth": "reduced"}
# The same as a CSV file has it.
MAIN_TEXTS = {name: format_cell(value) for name, value in MAIN_FILTER.items()}
KEYS = (*RUN, "measure", "delta", "truth", "criterion", "subset")
# Criteria whose rates are also given by parts of the tokens.
SPLIT = ("full", "aggregated", "uniform")
MU_EDGES = (0.01, 0.1, 0.5)


def base_columns(measure: str) -> list[str]:
    """What a row of a measure needs from a record."""
    own = [schema.divergence(measure, where, when) for where in TRUTHS for when in ("before", "after")]
    own += [schema.direction(measure, rule) for rule in ("full", *schema.TAIL_RULES)]
    return [*own, "advantage", "logp_pi", "logp_mu"]


def needed_columns() -> list[str]:
    """All columns that `rows` reads."""
    columns = ["certificate_low", "certificate_high", *(schema.finite_step(size) for size in schema.STEPS)]
    columns += ["step", "mini_batch", "position", "length", "age", "sampled_row", "top_mass_mu"]
    for measure in schema.MEASURES:
        columns += base_columns(measure)
    return list(dict.fromkeys(columns))


def rows(path: str) -> Iterator[dict[str, Any]]:
    """All rows of one run; `top_mass` is the mean mass of mu's top K over the responses kept whole, D large or not."""
    record = read(path, needed_columns())
    whole = record["sampled_row"]
    mass = {"top_mass": float(record["top_mass_mu"][whole].mean()) if whole.any() else math.nan}
    active = record.where(record["advantage"] != 0)
    for measure, radii in RADII.items():
        for delta in radii:
            main = (measure, delta) == MAIN
            for criterion in names(measure):
                for truth in TRUTHS:
                    split = main and truth == "reduced" and criterion in SPLIT
                    chosen = subsets(active) if split else {"all": np.full(len(active), True)}
                    for subset, flags in chosen.items():
                        yield _row(active, measure, delta, truth, criterion, subset, flags) | mass


def _row(
    record: Record, measure: str, delta: float, truth: str, criterion: str, subset: str, flags: Flags
) -> dict[str, Any]:
    # Divergence is what the mask sees, the reduced divergence; the truth may be that of the whole vocabulary.
    outside = flags & (record[schema.divergence(measure, "reduced", "before")] > delta)
    change = record[schema.divergence(measure, truth, "after")] - record[schema.divergence(measure, truth, "before")]
    verdict = outward(record, criterion, measure, _generator(record), outside)
    counted = rates(outside, verdict, ratio_outward(record), change)
    # The certificate is of the forward KL.
    certified = measure == "forward_kl" and outside.any()
    decided = np.mean(certificate_decides(record)[outside]) if certified else np.nan
    keys = {"measure": measure, "delta": delta, "truth": truth, "criterion": criterion, "subset": subset}
    return record.run() | keys | {"active": int(flags.sum()), "decided_share": float(decided)} | counted.row()


def subsets(record: Record) -> Mapping[str, Flags]:
    """Named parts of the tokens: sign of A, place in the training step, in the response, in the run, and mu."""
    advantage, mini_batch, mu = record["advantage"], record["mini_batch"], np.exp(record["logp_mu"])
    found = {"all": np.full(len(record), True), "A > 0": advantage > 0, "A < 0": advantage < 0}
    found |= {f"mini-batch {index}": mini_batch == index for index in np.unique(mini_batch)}
    found |= {f"age {age}": record["age"] == age for age in np.unique(record["age"])}
    place = record["position"] / np.maximum(record["length"] - 1, 1)
    found |= {"first half of response": place < 0.5, "second half of response": place >= 0.5}
    middle = np.median(record["step"]) if len(record) else 0
    found |= {"first half of run": record["step"] <= middle, "second half of run": record["step"] > middle}
    for low, high in zip((0.0, *MU_EDGES), (*MU_EDGES, np.inf), strict=True):
        name = f"mu < {high:g}" if low == 0 else f"mu >= {low:g}" if high == np.inf else f"{low:g} <= mu < {high:g}"
        found[name] = (mu >= low) & (mu < high)
    return found


def _generator(record: Record) -> np.random.Generator:
    """Of the random control: the run's own, so that another run changes nothing here."""
    return np.random.default_rng(np.random.SeedSequence(entropy=record.seed, spawn_key=(0x72,)))
