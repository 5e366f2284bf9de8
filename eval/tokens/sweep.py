"""What the retained K does: against the full vocabulary, on the same states and the same steps.

The set outside is taken anew for each K, from its own reduced divergence: that is what a mask with this K would see.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from eval.tokens.criteria import ratio_outward
from eval.tokens.rates import rates
from eval.tokens.records import read, sweep_sizes
from eval.tokens.study import MAIN
from methods.tokens import schema

FULL = "full"


def rows(path: str) -> Iterator[dict[str, Any]]:
    """Per K and tail rule: share of tokens outside, captured divergence, wrong signs against the truth, the gap."""
    sizes = sweep_sizes(path)
    measure, delta = MAIN
    sweeps = [schema.sweep(k) for k in sizes] + [schema.sweep(k, rule) for k in sizes for rule in schema.TAIL_RULES]
    before, after = (schema.divergence(measure, FULL, when) for when in ("before", "after"))
    truth = schema.direction(measure, FULL)
    record = read(path, [*sweeps, before, after, truth, "advantage", "logp_pi", "logp_mu"])
    active = record.where(record["advantage"] != 0)
    change, ratio = active[after] - active[before], ratio_outward(active)
    sign = np.sign(active["advantage"])
    true_outward = sign * np.sign(active[truth]) > 0
    identity = record.run()
    for k in (*sizes, None):
        reduced = active[before if k is None else schema.sweep(k)]
        outside = reduced > delta
        captured = float(reduced[outside].sum() / active[before][outside].sum()) if outside.any() else float("nan")
        for rule in schema.TAIL_RULES if k is not None else (FULL,):
            predicted = active[truth if k is None else schema.sweep(k, rule)]
            verdict = sign * np.sign(predicted) > 0
            counted = rates(outside, verdict, ratio, change)
            wrong = float(np.mean(verdict[outside] != true_outward[outside])) if outside.any() else float("nan")
            size = {"k": "V" if k is None else k, "rule": rule, "captured": captured, "wrong_sign": wrong}
            yield identity | size | {"active": len(active)} | counted.row()
