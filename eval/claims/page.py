"""verdicts.csv, verdicts_by_setting.csv and verdicts.html of a tier."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from eval import markup
from eval.claims.verdicts import Verdict
from eval.files import write_csv, write_text

COLUMNS = (
    "claim",
    "paper",
    "figure",
    "quantity",
    "paper_value",
    "ours",
    "low",
    "high",
    "interval_kind",
    "n",
    "verdict",
    "note",
    "mark",
)
SETTING_COLUMNS = ("claim", "setting", "ours", "low", "high", "interval_kind", "n", "note")


def row(verdict: Verdict) -> dict[str, Any]:
    """A row of verdicts.csv; the claim is "id: sentence"."""
    claim, estimate = verdict.claim, verdict.estimate
    return {
        "claim": f"{claim.id}: {claim.sentence}",
        "paper": claim.paper,
        "figure": claim.figure,
        "quantity": claim.quantity,
        "paper_value": claim.paper_value,
        "ours": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
        "interval_kind": estimate.kind,
        "n": estimate.n,
        "verdict": verdict.word,
        "note": verdict.note,
        "mark": claim.mark,
    }


def write(verdicts: Sequence[Verdict], by_setting: Sequence[dict[str, Any]], output: Path, title: str) -> None:
    """All three files. by_setting: rows of SETTING_COLUMNS, which have no word."""
    write_csv(output / "verdicts.csv", COLUMNS, map(row, verdicts))
    write_csv(output / "verdicts_by_setting.csv", SETTING_COLUMNS, by_setting)
    papers = [verdict for verdict in verdicts if not verdict.claim.own]
    own = [verdict for verdict in verdicts if verdict.claim.own]
    sections = [
        ("papers", "Claims of the papers", _section(papers, "One row for each claim; 95 % intervals over seeds.")),
        ("own", "Hypotheses of ours", _section(own, "Not in the papers; words of their own.")),
    ]
    write_text(output / "verdicts.html", markup.page(title, sections))


def _section(verdicts: Sequence[Verdict], caption: str) -> str:
    if not verdicts:
        return "<p>None.</p>"
    counts = Counter(verdict.word for verdict in verdicts)
    said = ", ".join(f"{number} {name}" for name, number in sorted(counts.items()))
    columns = ("claim", "verdict", "quantity", "paper", "ours", "n", "interval", "figure", "note", "mark")
    return f"<p>{escape(said)}.</p>\n" + markup.table(columns, [_cells(verdict) for verdict in verdicts], caption)


def _cells(verdict: Verdict) -> list[str]:
    claim, estimate = verdict.claim, verdict.estimate
    ours = markup.number(str(estimate.value))
    if not math.isnan(estimate.low):
        ours += f" [{markup.number(str(estimate.low))}, {markup.number(str(estimate.high))}]"
    return [
        f"{claim.id}: {claim.sentence}",
        verdict.word,
        claim.quantity,
        markup.number(str(claim.paper_value)),
        ours,
        str(estimate.n),
        estimate.kind,
        f"{claim.paper} {claim.figure}",
        verdict.note,
        markup.Html(markup.mark(claim.mark)),
    ]
