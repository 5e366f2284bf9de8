"""Why a predicted decrease of the divergence came out as an increase: curvature, or other tokens' gradients [N].

For tokens outside the region that the full prediction keeps, forward KL over the whole vocabulary. The real step moves
the logits by dz; its part along the sampled token is c (e_k - pi), with c from the token's own log-prob.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eval.tokens.records import read
from eval.tokens.study import MAIN
from methods.tokens import schema

CAUSES = {
    "reversed": "the token itself moved against its advantage: other tokens' gradients outweigh its own",
    "curvature": "it moved with its advantage, and its own finite step alone raises the divergence",
    "others": "it moved with its advantage, its own step lowers D, the whole step raises it to first order",
    "batch_curvature": "the first-order effect of the whole step lowers D, its curvature raises it",
}


def row(path: str) -> dict[str, Any]:
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
        "own_forward_share": _mean(forward),
        "accuracy_predicted": _mean(predicted == rose),
        "accuracy_own_step": _mean(own_rise == rose),
        "accuracy_batch_first_order": _mean(first_order_rise == rose),
    }


def _mean(flags: np.ndarray[Any, np.dtype[np.bool_]]) -> float:
    return float(flags.mean()) if flags.size else float("nan")
