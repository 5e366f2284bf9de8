"""The token study on one self-contained HTML page: verdicts, open questions, figures, rates, settings, limits.

    python -m eval.tokens.page --title "..." --verdicts verdicts/tokens.csv --table tokens_summary.csv ... \\
        --figure token_unsafe_keep.svg ... --settings '{"settings": ...}' --output tokens.html

A table is known by its file's name (`TABLES`); what is not given has no section. No time, host or link to the outside,
so the same inputs give the same bytes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from eval import markup
from eval.files import InputError, read_csv, write_text
from eval.models import described
from eval.report import LIMITS, figure_section, table_section
from eval.tokens import open_questions, page_tables, summary, verdicts
from methods.provenance import MARKS

STYLE = """
.verdict { padding: 0.1rem 0.45rem; border-radius: .25em; font-weight: 600; white-space: nowrap; }
.verdict.replicated, .verdict.supported { background: #d9f0dc; color: #0b4f1b; }
.verdict.direction-only { background: #fdf0cf; color: #5a4300; }
.verdict.contradicted, .verdict.not-supported { background: #fbdcd8; color: #7c1408; }
.verdict.underpowered, .verdict.open, .verdict.not-testable { background: #ececec; color: #3a3a3a; }
#verdicts td:not(.number) { white-space: normal; }
#verdicts td.text { min-width: 9rem; }
""".rstrip()

RULE = (
    "Brackets: 95 % t interval over seeds, not adjusted for the number of rows. Primary is the gap with the aggregated "
    "tail; pooled corrective-keep is the same measurement from its other side. replicated: the interval lies on the "
    "paper's side of 0 and the value is half to twice the paper's. direction only: on its side, another size. "
    "contradicted: on the other side, or the 90 % interval lies within half of the paper's effect around 0. A share is "
    "judged by its size: within 2/3 to 3/2 of the paper's. underpowered: none of these. not testable: below 6 seeds."
)
OWN_RULE = (
    "Not claims of the paper, so none of its numbers stands here. supported: the interval lies on the expected side of "
    "0 and the value is beyond the margin. not supported: on the other side, or the 90 % interval lies within the "
    "margin. open: neither. not testable: below 6 seeds."
)
TOY = (
    "Toy world: {models} sorting numbers, and staleness (a rollout policy several weight syncs old) stands in for the "
    "mismatch between real engines. What holds here is a fact about this set-up."
)
OWN = "Results of {models} and the prompts listed under settings, which are not the paper's."
STUDY_LIMITS = (
    "The paper names 61 seeds and 1,024 sequences a seed; the model, precision, learning rate, mini-batch and kind of "
    "update behind its numbers are unknown, and the kind of update decides the size of the gap. The default here is an "
    "unmasked probe step on a snapshot; steps of the methods themselves stand beside it as settings of their own.",
    "The realised change is that of one optimiser step at the same states. It is no statement about training curves.",
    "The truth over the whole vocabulary takes mu from a forward pass of the rollout's weights, not from the engine.",
    "The seed is the unit of every interval and test. Nothing is corrected for the number of rows looked at.",
    LIMITS[3],
)


def verdict_table(rows: Sequence[Mapping[str, str]]) -> str:
    """The claims of the paper, then our own hypotheses: value with interval, and the verdict in words and colour."""
    for row in rows:
        if row["verdict"] not in page_tables.WORDS:
            raise InputError(f"--verdicts: verdict = {row['verdict']!r}: allowed are {', '.join(page_tables.WORDS)}")
    parts = []
    for heading, reference, rule, own in (
        ("Claims of the paper", "paper", RULE, False),
        ("Own hypotheses", "margin", OWN_RULE, True),
    ):
        shown = [_judged(row, reference) for row in rows if (row["paper"] == "nan") is own]
        if shown:
            columns = ["claim", "mark", "setting", reference, "ours", "seeds", "verdict", "note"]
            parts.append(f"<h3>{heading}</h3>\n{markup.table(columns, shown, rule)}")
    return "\n".join(parts)


def _judged(row: Mapping[str, str], reference: str) -> list[str]:
    word = row["verdict"]
    shown = f'<span class="verdict {word.replace(" ", "-")}">{page_tables.WORDS[word]}</span>'
    return [
        row["claim"],
        f"[{row['mark']}]",
        row["setting"],
        markup.number(row[reference], signed=reference == "paper"),
        page_tables.between(row, "ours", "low", "high"),
        row["n_seeds"],
        markup.Html(shown),
        row["note"],
    ]


# By file name: the section, what shows the table, and the columns that takes. Another table is shown as it is, folded,
# under rates.
TABLES: dict[str, tuple[str, Callable[[Sequence[Mapping[str, str]]], str], Sequence[str]]] = {
    "tokens_open": ("open", page_tables.open_questions, open_questions.COLUMNS),
    "tokens_summary": ("rates", page_tables.summary, summary.COLUMNS),
    "tokens_causes": ("rates", page_tables.causes, page_tables.COUNTED),
    "tokens_seeds": ("rates", page_tables.seeds, page_tables.SEEDS),
    "mismatch": ("mismatch", page_tables.mismatch, ()),
}
HEADINGS = {"open": "What the paper left open", "rates": "Rates", "mismatch": "Mismatch before any update"}


def tables(paths: Sequence[Path]) -> dict[str, str]:
    """HTML by section of HEADINGS, in the order of TABLES; a section without a table is left out.

    Raises InputError for a table that lacks a column, or has a text where a number is needed.
    """
    order = [*TABLES]
    parts: dict[str, list[str]] = {}
    for path in sorted(paths, key=lambda path: order.index(path.stem) if path.stem in order else len(order)):
        section, show, columns = TABLES.get(path.stem, ("rates", None, ()))
        rows = read_csv(path, "--table", columns) if show else []
        if not show or not rows:
            parts.setdefault(section, []).append(table_section(path, {}))
            continue
        try:
            parts.setdefault(section, []).append(show(rows))
        except InputError as error:
            raise InputError(f"--table: {path}: {error}") from error
    return {name: "\n".join(found) for name, found in parts.items()}


def build(args: argparse.Namespace) -> str:
    """The page as text. Raises InputError for a file it cannot use."""
    limits = [(TOY if args.toy else OWN).format(models=described(args.model)), *STUDY_LIMITS]
    judged = verdict_table(read_csv(args.verdicts, "--verdicts", verdicts.COLUMNS))
    intro = f"<p>{escape(limits[0])} See <a href='#limits'>limits</a>.</p>"
    figures = "\n".join(figure_section(path, number) for number, path in enumerate(args.figure, start=1))
    legend = "".join(f"<li>{markup.mark(letter)} {escape(text)}</li>" for letter, text in MARKS.items())
    groups = markup.table(["setting", "value"], markup.flatten(_groups(args.settings)), "Of the runs recorded.")
    stated = "".join(f"<li>{escape(text)}</li>" for text in limits)
    shown = tables(args.table)
    sections = [
        ("verdicts", "Verdicts", f"{intro}\n{judged}"),
        ("open", HEADINGS["open"], shown.get("open", "")),
        ("figures", "Figures", figures),
        *((name, HEADINGS[name], shown.get(name, "")) for name in ("rates", "mismatch")),
        ("provenance", "Provenance", f"<p>How sure a claim or number is:</p>\n<ul>{legend}</ul>"),
        ("settings", "Settings", f"<details><summary>all settings</summary>\n{groups}\n</details>"),
        ("limits", "Limits", f"<ul>{stated}</ul>"),
    ]
    return markup.page(args.title, [section for section in sections if section[2]], STYLE)


def _groups(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"--settings is not JSON: {error}") from error


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page; 0, or 2 after one line that says what is wrong."""
    parser = argparse.ArgumentParser(prog="python -m eval.tokens.page", description=__doc__.splitlines()[0])
    parser.add_argument("--title", required=True)
    parser.add_argument("--verdicts", type=Path, required=True, help="CSV")
    parser.add_argument("--table", type=Path, nargs="+", default=[], help=f"CSV files; {', '.join(TABLES)} are known")
    parser.add_argument("--figure", type=Path, nargs="+", default=[], help="SVG files")
    parser.add_argument("--settings", default="{}", help="JSON of the settings of the runs")
    parser.add_argument(
        "--model", type=Path, nargs="+", default=[], help="folders of the models trained, for their size"
    )
    parser.add_argument("--toy", action="store_true", help="the runs are of the toy world: its limits are stated")
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args(arguments)
    try:
        write_text(args.output, build(args))
    except (InputError, OSError) as error:
        print(f"eval.tokens.page: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
