"""The realised changes of D of the kept tokens in Q, as a histogram per run: what the paper's Figure 4 shows pooled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from eval.tokens.criteria import outward, ratio_outward
from eval.tokens.records import RUN, read
from eval.tokens.study import MAIN
from methods.tokens import schema

# Changes of D in nats; what lies beyond falls into the outermost bins.
EDGES = np.linspace(-0.5, 0.5, 41)
CRITERIA = ("aggregated", "uniform", "full")
COLUMNS = (*RUN, "criterion", "keeper", "low", "high", "count")


def rows(path: str) -> Iterator[dict[str, Any]]:
    """Counts per bin of EDGES, for the criterion's kept tokens and for those of the ratio on the same Q."""
    measure, delta = MAIN
    before, after = (schema.divergence(measure, "reduced", when) for when in ("before", "after"))
    directions = [schema.direction(measure, rule) for rule in CRITERIA]
    record = read(path, [before, after, *directions, "advantage", "logp_pi", "logp_mu"])
    tokens = record.where((record["advantage"] != 0) & (record[before] > delta))
    change = np.clip(tokens[after] - tokens[before], EDGES[0], EDGES[-1])
    ratio = ratio_outward(tokens)
    identity = record.run()
    for criterion in CRITERIA:
        verdict = outward(tokens, criterion, measure, np.random.default_rng(0))
        for keeper, kept in ((criterion, ratio & ~verdict), ("ratio", verdict & ~ratio)):
            counts, _ = np.histogram(change[kept], EDGES)
            for low, high, count in zip(EDGES[:-1], EDGES[1:], counts, strict=True):
                if count:
                    key = {"criterion": criterion, "keeper": keeper, "low": float(low), "high": float(high)}
                    yield identity | key | {"count": int(count)}
