"""One self-contained HTML page: results, figures, derivations, provenance, settings, limits.

    python -m eval.report --title "Tether, toy tier" --figure curves.svg --table summary.csv scores.csv \\
        --labels labels.json --derivations theorems.json --derivation-figure weights.svg \\
        --derivation-page derivations/theorems.html --manifest manifest.json --output report.html

No time, host or link to the outside, so the same inputs give the same bytes. A figure's caption is the title and
description inside its SVG. The derivations are what `python -m derivations --json` writes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from eval import markup, theorems
from eval.figures.style import MARKS
from eval.files import InputError, read_csv, read_json, write_text

LONGEST_TABLE = 40
LIMITS = (
    "Toy world: a stand-in, not the paper's scale. A model of about 0.14 million parameters sorts numbers; the papers "
    "train models of 1.7 to 30 billion parameters on mathematics. What holds here is a fact about this set-up.",
    "One task family, and one warm start unless several are listed in the settings: seeds vary prompts, sampling and "
    "mini-batches.",
    "Staleness (a rollout policy several weight syncs old) stands in for the mismatch between real engines.",
    "Intervals are over seeds. Below about 6 seeds no bootstrap interval reaches its nominal level (on normal data a "
    "95 % interval from 3 seeds covers about 75 %): read them as descriptions, not as tests.",
    "The final step was fixed beforehand; no checkpoint was chosen by its score.",
)
PROVENANCE = {
    "F": "exact from the paper's full text or its authors' code",
    "S": "from a secondary source that read the paper",
    "I": "inferred: plausible, not seen in a source",
    "N": "ours",
}
SUMMARY = ("method", "n_seeds", "start", "final_low", "gain_low", "run_reward_low", "final_diff_low")


def summary_table(rows: Sequence[Mapping[str, str]], labels: Mapping[str, Any]) -> str:
    """The summary with intervals beside their means, one table for all panels."""
    shown = []
    rank = {name: number for number, name in enumerate(labels)}
    for row in sorted(rows, key=lambda row: (row["panel"], rank.get(row["method"], len(rank)), row["method"])):
        title = labels.get(row["method"], {}).get("title", row["method"])
        letter = labels.get(row["method"], {}).get("mark")
        wins = f"{row['run_reward_wins']} of {row['n_pairs']}"
        differs = row["method"] != row["reference"]
        shown.append(
            [
                row["panel"],
                f"{title} [{letter}]" if letter else title,
                row["n_seeds"],
                markup.number(row["start"]),
                markup.with_interval(row, "final"),
                markup.with_interval(row, "gain", signed=True),
                markup.with_interval(row, "run_reward"),
                markup.with_interval(row, "run_reward_diff", signed=True) if differs else "–",
                wins if differs else "–",
                markup.with_interval(row, "final_diff", signed=True) if differs else "–",
                row["note"],
            ]
        )
    references = sorted({labels.get(row["reference"], {}).get("title", row["reference"]) for row in rows})
    intervals = sorted({row["interval"] for row in rows})
    columns = ["panel", "method", "seeds", "start", "final", "gain", "run reward"]
    columns += ["run reward,\ndifference", "seeds\nabove", "final,\ndifference", "note"]
    caption = (
        "start, final: accuracy of the first and last checkpoint (avg@k, lm-eval). Run reward: mean rollout reward "
        "over the run without its first lag steps. Differences are to "
        f"{', '.join(references)}, paired by seed. Brackets: bootstrap interval over seeds ({', '.join(intervals)})."
    )
    if not any(line[-1] for line in shown):
        columns, shown = columns[:-1], [line[:-1] for line in shown]
    return markup.table(columns, shown, caption)


def table_section(path: Path, labels: Mapping[str, Any]) -> str:
    """A CSV as a table: the summary compactly, any other as it is, cut after LONGEST_TABLE rows."""
    rows = read_csv(path, "--table")
    if not rows:
        return f'<p class="muted">{escape(path.name)} is empty.</p>'
    if set(SUMMARY) <= set(rows[0]):
        return summary_table(rows, labels)
    cut = f" First {LONGEST_TABLE} of {len(rows)} rows." if len(rows) > LONGEST_TABLE else ""
    cells = [list(row.values()) for row in rows[:LONGEST_TABLE]]
    shown = markup.table(list(rows[0]), cells, f"{path.name}.{cut}")
    return f"<details><summary>{escape(path.name)}</summary>\n{shown}\n</details>"


def figure_section(path: Path, number: int) -> str:
    """An inlined SVG with its caption."""
    drawing, title, description = markup.inline_svg(path, number)
    caption = f"<strong>Figure {number}. {escape(title)}.</strong> {escape(description)}"
    return f"<figure>\n{drawing}\n<figcaption>{caption}</figcaption>\n</figure>"


def provenance_section(labels: Mapping[str, Any]) -> str:
    """The legend of the marks, and the methods of this report with theirs."""
    legend = "".join(f"<li>{markup.mark(letter)} {escape(text)}</li>" for letter, text in PROVENANCE.items())
    rows = [[str(entry.get("title", name)), name, f"[{entry.get('mark', '')}]"] for name, entry in labels.items()]
    methods = markup.table(["method", "label", "formula"], rows, "Methods of this report.") if rows else ""
    return f"<p>A letter says how sure a formula or constant is:</p>\n<ul>{legend}</ul>\n{methods}"


def _limits(path: Path | None) -> Sequence[str]:
    if path is None:
        return LIMITS
    texts = read_json(path, "--limits")
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise InputError(f"--limits: {path} must be a list of sentences")
    return texts


def build(args: argparse.Namespace) -> str:
    """The page as text."""
    labels = read_json(args.labels, "--labels") if args.labels else {}
    if not isinstance(labels, dict) or any(
        not isinstance(entry, dict) or entry.get("mark", "N") not in MARKS for entry in labels.values()
    ):
        raise InputError(f"{args.labels}: expected {{label: {{title, mark of {list(MARKS)}}}}}")
    stated = _limits(args.limits)
    intro = f"<p>{escape(stated[0])} See <a href='#limits'>limits</a>.</p>"
    # The summary first: the others are folded raw data.
    ordered = sorted(args.table, key=lambda path: path.stem != "summary")
    tables = "\n".join(table_section(path, labels) for path in ordered)
    figures = "\n".join(figure_section(path, number) for number, path in enumerate(args.figure, start=1))
    sections = [("results", "Results", f"{intro}\n{figures}\n{tables}")]
    if args.derivations:
        content = read_json(args.derivations, "--derivations")
        body = theorems.section(content, args.derivations, args.derivation_page)
        first = len(args.figure) + 1
        drawn = [figure_section(path, number) for number, path in enumerate(args.derivation_figure, start=first)]
        body = "\n".join([*drawn, body])
        if args.agreement:
            body = theorems.agreement(read_json(args.agreement, "--agreement"), args.agreement) + "\n" + body
        sections.append(("derivations", "Derivations", body))
    sections.append(("provenance", "Provenance", provenance_section(labels)))
    if args.manifest:
        pairs = markup.flatten(read_json(args.manifest, "--manifest"))
        sections.append(("settings", "Settings", markup.table(["setting", "value"], pairs, args.manifest.name)))
    limits = "".join(f"<li>{escape(text)}</li>" for text in stated)
    sections.append(("limits", "Limits", f"<ul>{limits}</ul>"))
    return markup.page(args.title, sections)


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line; see the module docstring."""
    parser = argparse.ArgumentParser(prog="python -m eval.report", description=__doc__.splitlines()[0])
    parser.add_argument("--title", required=True)
    parser.add_argument("--figure", type=Path, nargs="+", default=[], help="SVG files")
    parser.add_argument("--table", type=Path, nargs="+", default=[], help="CSV files")
    parser.add_argument("--labels", type=Path, help="labels.json, for titles and marks")
    parser.add_argument("--derivations", type=Path, help="JSON of the proved formulas")
    parser.add_argument("--derivation-figure", type=Path, nargs="+", default=[], help="SVG files, with --derivations")
    parser.add_argument("--derivation-page", help="the proofs as a page: its place relative to the report")
    parser.add_argument("--agreement", type=Path, help="JSON of code against proofs, shown with --derivations")
    parser.add_argument("--manifest", type=Path, help="JSON of the settings")
    parser.add_argument("--limits", type=Path, help="JSON list of sentences in place of the toy world's limits")
    parser.add_argument("--output", type=Path, required=True)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the report; 0, or 2 after one line that says what is wrong."""
    args = parse_arguments(arguments)
    try:
        write_text(args.output, build(args))
    except InputError as error:
        print(f"eval.report: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
