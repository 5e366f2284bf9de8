"""A verdict per claim of arXiv 2607.10848, 4.2: the paper's value, ours with its interval, and what follows.

replicated: the interval excludes the null value on the paper's side. contradicted: it excludes the null on the other
side, or holds the null and excludes the paper's value. underpowered: it holds both, so it decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from eval.tokens.answers import FEW
from eval.tokens.summary import PAPER_CORRECTIVE_GAP, PAPER_GAP

Verdict = Literal["replicated", "contradicted", "underpowered"]
COLUMNS = ("claim", "mark", "setting", "paper", "ours", "low", "high", "null", "n_seeds", "verdict", "note")


@dataclass(frozen=True)
class Claim:
    """A claim about one column of the summary: its value in the paper and the value that would make it empty."""

    text: str
    mark: str
    column: str
    paper: float
    null: float
    criterion: str


_LESS_OFTEN = "the prediction's kept tokens raise D less often"
CLAIMS = (
    Claim("the two directions disagree on some tokens outside", "S", "disagreement_share", 0.057, 0.0, "aggregated"),
    Claim(f"{_LESS_OFTEN}, aggregated tail", "S", "gap", -PAPER_GAP, 0.0, "aggregated"),
    Claim(f"{_LESS_OFTEN}, uniform tail", "I", "gap", -PAPER_GAP, 0.0, "uniform"),
    Claim(f"{_LESS_OFTEN}, whole vocabulary", "N", "gap", -PAPER_GAP, 0.0, "full"),
    Claim(
        "pooled, more of its kept tokens lower D", "S", "corrective_gap_pooled", PAPER_CORRECTIVE_GAP, 0.0, "aggregated"
    ),
    Claim("it gains sign accuracy over all tokens outside", "N", "accuracy_gain", math.nan, 0.0, "aggregated"),
)


def verdict(paper: float, null: float, low: float, high: float) -> Verdict:
    """By the rule above; a claim without a number of its own claims a value above the null (or its sign's side)."""
    if math.isnan(low) or math.isnan(high):
        return "underpowered"
    above = math.isnan(paper) or paper > null
    if (low > null) if above else (high < null):
        return "replicated"
    if (high < null) if above else (low > null):
        return "contradicted"
    holds_paper = math.isnan(paper) or low <= paper <= high
    return "underpowered" if holds_paper else "contradicted"


def rows(summary: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row per claim and setting (panel, update), from the summary's rows at the paper's radius and all tokens."""
    found = []
    for claim in CLAIMS:
        for row in summary:
            wanted = {"measure": "forward_kl", "delta": 0.15, "truth": "reduced", "subset": "all"}
            if row["criterion"] != claim.criterion or any(row[name] != value for name, value in wanted.items()):
                continue
            low, high = row[f"{claim.column}_low"], row[f"{claim.column}_high"]
            n = row["n_used"] if claim.column == "gap" else row["n_seeds"]
            found.append(
                {
                    "claim": claim.text,
                    "mark": claim.mark,
                    "setting": f"panel {row['panel']}, {_update(row)}",
                    "paper": claim.paper,
                    "ours": row[claim.column],
                    "low": low,
                    "high": high,
                    "null": claim.null,
                    "n_seeds": n,
                    "verdict": verdict(claim.paper, claim.null, low, high),
                    "note": _note(claim, row, n),
                }
            )
    return found


def _update(row: Mapping[str, Any]) -> str:
    return f"own update of {row['label']}" if row["update"] == "own" else f"{row['update']} update"


def _note(claim: Claim, row: Mapping[str, Any], n: int) -> str:
    low, high = row[f"{claim.column}_low"], row[f"{claim.column}_high"]
    if math.isnan(low):
        parts = ["too few seeds for an interval"]
    else:
        parts = [f"with {n} seeds a description"] if n < FEW else []
    if low > claim.paper or high < claim.paper:
        parts.append("the paper's size is outside the interval")
    if claim.column == "disagreement_share":
        parts.append("a share cannot be below 0: the size says more than the verdict")
    if claim.column == "gap":
        parts.append(f"{row['wins']} of {row['n_used']} seeds below 0 (paper: 38 of 61)")
    return "; ".join(parts)
