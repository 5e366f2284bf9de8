"""A verdict per claim of arXiv 2607.10848, 4.2: the paper's value, ours with its interval, and what follows.

By the 95 % interval over seeds (not adjusted for the number of rows), the paper's value and a margin, half of it:
* replicated: the interval lies on the paper's side of 0, and our value is half to twice the paper's;
* direction only: it lies on the paper's side, and the size is another;
* contradicted: it lies on the other side; or the 90 % interval lies within the margin: no effect that matters;
* underpowered: none of these; the note says how many seeds would tell an effect of the margin;
* not testable: fewer than 6 seeds, or no interval.
A share cannot be below 0, so it is judged by its size alone: replicated where the interval lies within 2/3 to 3/2 of
the paper's value, contradicted where it lies outside of that.

What the paper does not claim (another tail, another quantity) carries none of its numbers and has words of its own:
supported (the interval lies on the expected side, the value beyond the margin), not supported, open, not testable.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from scipy import stats

from eval.statistics import clopper_pearson
from eval.tokens.contrasts import FEW
from eval.tokens.significance import seeds_needed
from eval.tokens.study import MAIN_FILTER
from eval.tokens.summary import PAPER_CORRECTIVE_GAP, PAPER_GAP

Word = Literal["replicated", "direction only", "contradicted", "underpowered", "not testable"]
OwnWord = Literal["supported", "not supported", "open", "not testable"]
COLUMNS = ("claim", "mark", "setting", "paper", "ours", "low", "high", "margin", "n_seeds", "verdict", "note")
# What counts as the paper's size: of a difference, and of a share.
SAME_SIZE, SAME_SHARE = (1 / 2, 2.0), (2 / 3, 3 / 2)
# Sign accuracy has no number in the paper: half a point [N].
ACCURACY_MARGIN = 0.005


@dataclass(frozen=True)
class Claim:
    """A claim about one column of the summary: which side of 0 it names, and its value where it is the paper's."""

    text: str
    mark: str
    column: str
    side: int
    margin: float
    criterion: str
    paper: float = math.nan
    is_share: bool = False


_LESS_OFTEN = "the prediction's kept tokens raise D less often"
CLAIMS = (
    Claim(
        "the two directions disagree on some tokens outside",
        "S",
        "disagreement_share",
        1,
        0.057 / 3,
        "aggregated",
        0.057,
        is_share=True,
    ),
    Claim(f"{_LESS_OFTEN}, aggregated tail", "S", "gap", -1, PAPER_GAP / 2, "aggregated", -PAPER_GAP),
    Claim(
        "pooled, more of its kept tokens lower D",
        "S",
        "corrective_gap_pooled",
        1,
        PAPER_CORRECTIVE_GAP / 2,
        "aggregated",
        PAPER_CORRECTIVE_GAP,
    ),
    Claim(f"{_LESS_OFTEN}, uniform tail", "I", "gap", -1, PAPER_GAP / 2, "uniform"),
    Claim(f"{_LESS_OFTEN}, whole vocabulary", "N", "gap", -1, PAPER_GAP / 2, "full"),
    Claim("it gains sign accuracy over all tokens outside", "N", "accuracy_gain", 1, ACCURACY_MARGIN, "aggregated"),
)


def verdict(claim: Claim, value: float, low: float, high: float, n: int) -> Word | OwnWord:
    """By the rules above, from a mean over n seeds with its 95 % t interval."""
    if n < FEW or math.isnan(low) or math.isnan(high):
        return "not testable"
    own = math.isnan(claim.paper)
    if claim.is_share:
        least, most = (claim.paper * ratio for ratio in SAME_SHARE)
        if low > most or high < least:
            return "contradicted"
        return "replicated" if least <= low and high <= most else "underpowered"
    if low > 0 if claim.side > 0 else high < 0:
        if own:
            return "supported" if abs(value) >= claim.margin else "open"
        return "replicated" if SAME_SIZE[0] <= value / claim.paper <= SAME_SIZE[1] else "direction only"
    beyond = high < 0 if claim.side > 0 else low > 0
    narrow = _half(low, high) * float(stats.t.ppf(0.95, n - 1) / stats.t.ppf(0.975, n - 1))
    if beyond or (-claim.margin <= value - narrow and value + narrow <= claim.margin):
        return "not supported" if own else "contradicted"
    return "open" if own else "underpowered"


def rows(summary: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row per claim and setting (setting, update), from the summary's rows at the paper's radius and all tokens."""
    found = []
    for claim in CLAIMS:
        for row in summary:
            wanted = {**MAIN_FILTER, "criterion": claim.criterion, "subset": "all"}
            if any(row[name] != value for name, value in wanted.items()):
                continue
            value, low, high = (row[f"{claim.column}{end}"] for end in ("", "_low", "_high"))
            n = row["n_used"] if claim.column == "gap" else row["n_seeds"]
            word = verdict(claim, value, low, high, n)
            found.append(
                {
                    "claim": claim.text,
                    "mark": claim.mark,
                    "setting": f"setting {row['setting']}, {_update(row)}",
                    "paper": claim.paper,
                    "ours": value,
                    "low": low,
                    "high": high,
                    "margin": claim.margin,
                    "n_seeds": n,
                    "verdict": word,
                    "note": _note(claim, row, word, n),
                }
            )
    return found


def _update(row: Mapping[str, Any]) -> str:
    return f"own update of {row['variant']}" if row["update"] == "own" else f"{row['update']} update"


def _half(low: float, high: float) -> float:
    return (high - low) / 2


def _note(claim: Claim, row: Mapping[str, Any], word: str, n: int) -> str:
    value, low, high = (row[f"{claim.column}{end}"] for end in ("", "_low", "_high"))
    parts = []
    if word == "not testable":
        parts.append(f"{n} seed{'s' if n != 1 else ''}: not a test of a rate, which takes {FEW}")
    if not math.isnan(claim.paper):
        parts.append(f"{value / claim.paper:.2g} times the paper's size")
    if word in ("underpowered", "open"):
        parts.append(_needed(low, high, n, claim.margin))
    if claim.column == "gap":
        low, high = clopper_pearson(row["wins"], row["n_used"])
        said = "" if math.isnan(low) else f" [{low:.2f}, {high:.2f}]"
        paper = "" if math.isnan(claim.paper) else " (paper: 38 of 61)"
        parts.append(f"{row['wins']} of {row['n_used']} seeds below 0{said}{paper}")
    return "; ".join(parts)


def _needed(low: float, high: float, n: int, margin: float) -> str:
    """Seeds for an effect of the margin, from the upper 80 % bound of the spread: the spread itself is a guess."""
    sd = _half(low, high) / float(stats.t.ppf(0.975, n - 1)) * math.sqrt(n)
    upper = sd * math.sqrt((n - 1) / float(stats.chi2.ppf(0.2, n - 1)))
    try:
        return f"{seeds_needed(upper, margin)} seeds would tell an effect of {margin:.3g}"
    except ValueError:  # more than a million, or no spread
        return f"more than a million seeds would be needed for an effect of {margin:.3g}"
