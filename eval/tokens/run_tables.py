"""Tables of one run beside the rates: realised changes, causes of failures, and the sweep of K.

`change_rows`: the realised changes of D of the kept tokens in Q, as a histogram (the paper's Figure 4 pools them).

`cause_row`: why a predicted decrease of the divergence came out as an increase: curvature, or other tokens' gradients
[N]. For tokens outside the region that the full prediction keeps, forward KL over the whole vocabulary. The real step
moves the logits by dz; its part along the sampled token is c (e_k - pi), with c from the token's own log-prob.

`sweep_rows`: what the retained K does, against the full vocabulary, on the same states and the same steps. The set
outside is taken anew for each K, from its own reduced divergence: that is what a mask with this K would see.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from eval.tokens.criteria import outward, ratio_outward
from eval.tokens.rates import rates
from eval.tokens.records import RUN, read, sweep_sizes
from eval.tokens.study import MAIN
from methods.tokens import schema

# Changes of D in nats; what lies beyond falls into the outermost bins.
EDGES = np.linspace(-0.5, 0.5, 41)
CHANGE_CRITERIA = ("aggregated", "uniform", "full")
CHANGE_COLUMNS = (*RUN, "criterion", "keeper", "low", "high", "count")
CAUSES = {
    "reversed": "the token itself moved against its advantage: other tokens' gradients outweigh its own",
    "curvature": "it moved with its advantage, and its own finite step alone raises the divergence",
    "others": "it moved with its advantage, its own step lowers D, the whole step raises it to first order",
    "batch_curvature": "the first-order effect of the whole step lowers D, its curvature raises it",
}
FULL = "full"


def change_rows(path: str) -> Iterator[dict[str, Any]]:
    """Counts per bin of EDGES, for the criterion's kept tokens and for those of the ratio on the same Q."""
    measure, delta = MAIN
    before, after = (schema.divergence(measure, "reduced", when) for when in ("before", "after"))
    directions = [schema.direction(measure, rule) for rule in CHANGE_CRITERIA]
    record = read(path, [before, after, *directions, "advantage", "logp_pi", "logp_mu"])
    tokens = record.where((record["advantage"] != 0) & (record[before] > delta))
    change = np.clip(tokens[after] - tokens[before], EDGES[0], EDGES[-1])
    ratio = ratio_outward(tokens)
    identity = record.run()
    for criterion in CHANGE_CRITERIA:
        verdict = outward(tokens, criterion, measure, np.random.default_rng(0))
        for keeper, kept in ((criterion, ratio & ~verdict), ("ratio", verdict & ~ratio)):
            counts, _ = np.histogram(change[kept], EDGES)
            for low, high, count in zip(EDGES[:-1], EDGES[1:], counts, strict=True):
                if count:
                    key = {"criterion": criterion, "keeper": keeper, "low": float(low), "high": float(high)}
                    yield identity | key | {"count": int(count)}


def cause_row(path: str) -> dict[str, Any]:
    """Counts of one run: kept tokens, failures (D rose), their causes, and how good each approximation is."""
    measure, delta = MAIN
    before, after = (schema.divergence(measure, "full", when) for when in ("before", "after"))
    seen = schema.divergence(measure, "reduced", "before")
    direction = schema.direction(measure, "full")
    record = read(path, [before, after, seen, direction, "advantage", *schema.STEP_SIZES])
    tokens = record.where((record["advantage"] != 0) & (record[seen] > delta))
    advantage, rose = np.sign(tokens["advantage"]), tokens[after] > tokens[before]
    predicted = advantage * np.sign(tokens[direction]) > 0
    forward = advantage * np.sign(tokens["own_step"]) > 0
    own_rise, first_order_rise = tokens["own_step_change"] > 0, tokens["batch_first_order"] > 0
    failed = ~predicted & rose
    causes = {
        "reversed": failed & ~forward,
        "curvature": failed & forward & own_rise,
        "others": failed & forward & ~own_rise & first_order_rise,
        "batch_curvature": failed & forward & ~own_rise & ~first_order_rise,
    }
    counts = {name: int(flags.sum()) for name, flags in causes.items()}
    identity = record.run()
    return identity | {
        "outside": len(tokens),
        "kept": int((~predicted).sum()),
        "failed": int(failed.sum()),
        **counts,
        "own_forward_share": _share(forward),
        "accuracy_predicted": _share(predicted == rose),
        "accuracy_own_step": _share(own_rise == rose),
        "accuracy_batch_first_order": _share(first_order_rise == rose),
    }


def sweep_rows(path: str) -> Iterator[dict[str, Any]]:
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


def _share(flags: np.ndarray[Any, np.dtype[np.bool_]]) -> float:
    return float(flags.mean()) if flags.size else float("nan")
