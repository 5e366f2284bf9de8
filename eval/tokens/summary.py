"""Over seeds: mean rates with intervals, paired gaps with tests, and the power the seeds have."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from eval.statistics import Interval, mean_interval, pooled_difference
from eval.tokens.significance import flip_test, relabel_test, seeds_needed, sign_test, smallest_gap
from eval.tokens.study import KEYS

GROUPED_BY = tuple(name for name in KEYS if name != "seed")
MEANS = (
    "unsafe_keep",
    "unsafe_keep_ratio",
    "gap",
    "unsafe_drop",
    "accuracy_gain",
    "disagreement_share",
    "decided_share",
    "base_rate",
    "top_mass",
)
# The paper's gap in unsafe-keep, 36.9 - 34.2 points, and in corrective-keep over all seeds' tokens, 65.1 - 62.9
# (arXiv 2607.10848, 4.2) [S].
PAPER_GAP, PAPER_CORRECTIVE_GAP = 0.027, 0.022

COLUMNS = (
    *GROUPED_BY,
    "n_seeds",
    "n_used",
    "outside_per_seed",
    "disagreement_per_seed",
    *(f"{name}{end}" for name in MEANS for end in ("", "_low", "_high")),
    "corrective_keep_pooled",
    "corrective_keep_ratio_pooled",
    *(f"corrective_gap_pooled{end}" for end in ("", "_low", "_high")),
    "wins",
    "ties",
    "p_sign",
    "p_flip",
    "p_relabel",
    "gap_sd",
    "seeds_needed",
    "smallest_gap",
    "note",
)


def summarise(rows: Iterable[Mapping[str, Any]], seed: int = 0) -> list[dict[str, Any]]:
    """One row per group of `GROUPED_BY`; rows as `study.rows` gives them, a group's in any order of seeds."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in GROUPED_BY), []).append(row)
    return [_group(key, sorted(found, key=lambda row: row["seed"]), seed) for key, found in groups.items()]


def _group(key: tuple[Any, ...], rows: Sequence[Mapping[str, Any]], seed: int) -> dict[str, Any]:
    out: dict[str, Any] = dict(zip(GROUPED_BY, key, strict=True)) | {"n_seeds": len(rows)}
    out["outside_per_seed"] = float(np.mean([row["outside"] for row in rows]))
    out["disagreement_per_seed"] = float(np.mean([row["disagreement"] for row in rows]))
    for name in MEANS:
        interval = _mean([row[name] for row in rows], seed)
        out |= {name: interval.mean, f"{name}_low": interval.low, f"{name}_high": interval.high}
    # Seeds where either criterion keeps nothing in Q have no gap.
    used = [row for row in rows if not math.isnan(row["gap"])]
    gaps = [float(row["gap"]) for row in used]
    out["n_used"] = len(gaps)
    for side in ("", "_ratio"):
        whole = sum(row[f"kept{side}"] for row in rows)
        part = sum(row[f"corrective{side}"] for row in rows)
        out[f"corrective_keep{side}_pooled"] = part / whole if whole else math.nan
    kept = [(row["corrective"], row["kept"], row["corrective_ratio"], row["kept_ratio"]) for row in rows]
    pooled = pooled_difference(kept)
    out |= {
        "corrective_gap_pooled": pooled.mean,
        "corrective_gap_pooled_low": pooled.low,
        "corrective_gap_pooled_high": pooled.high,
    }
    out |= {"wins": sum(gap < 0 for gap in gaps), "ties": sum(gap == 0 for gap in gaps), "p_sign": sign_test(gaps)}
    counts = [(row["kept"], row["kept_ratio"], row["unsafe"], row["unsafe_ratio"]) for row in used]
    out["p_flip"] = flip_test(gaps, np.random.default_rng(seed))
    out["p_relabel"] = relabel_test(counts, np.random.default_rng(seed))
    sd = float(np.std(gaps, ddof=1)) if len(gaps) > 1 else math.nan
    out["gap_sd"] = sd
    powered = sd > 0
    out["seeds_needed"] = seeds_needed(sd, PAPER_GAP) if powered else None
    out["smallest_gap"] = smallest_gap(len(gaps), sd) if powered else math.nan
    out["note"] = "" if len(gaps) == len(rows) else f"{len(rows) - len(gaps)} seed(s) without a gap"
    return out


def _mean(values: Sequence[float], seed: int) -> Interval:
    finite = [value for value in values if not math.isnan(value)]
    return mean_interval(finite, np.random.default_rng(seed))
