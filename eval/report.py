"""One self-contained HTML page: results, figures, derivations, provenance, settings, limits.

    python -m eval.report --title "Tether, toy tier" --figure curves.svg --table summary.csv scores.csv \\
        --variants variants.json --derivations theorems.json --derivation-figure weights.svg \\
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
from eval.files import InputError, in_order, read_csv, read_json, write_text
from eval.models import described
from eval.statistics import clopper_pearson, not_a_test
from eval.variants import distinct_titles
from methods.provenance import MARKS

LONGEST_TABLE = 40
# The first says what was trained: `{models}` is filled in from the models' files.
LIMITS = (
    "Toy world: a stand-in, not the paper's scale. Trained here: {models}, sorting numbers; the papers train models of "
    "1.7 to 30 billion parameters on mathematics. What holds here is a fact about this set-up.",
    "One task family, and one warm start unless several are listed in the settings: seeds vary prompts, sampling and "
    "mini-batches.",
    "Staleness (a rollout policy several weight syncs old) stands in for the mismatch between real engines.",
    "Intervals are Student's t over seeds, from 3 seeds on; with 1 or 2 seeds the values stand alone, which is no "
    "test. They hold for data near normal: where runs collapse now and then, an interval from few seeds covers less "
    "than it says. They are over data order and sampling for these problems and this start, not over others.",
    "The final step was fixed beforehand; no checkpoint was chosen by its score.",
)
SUMMARY = ("variant", "n_seeds", "start", "final_low", "gain_low", "run_reward_low", "final_diff_low")


def summary_table(
    rows: Sequence[Mapping[str, str]], variants: Mapping[str, Any], settings: Sequence[str] | None = None
) -> str:
    """The summary with intervals beside their means, one table for all settings, which stand in the order given."""
    shown = []
    titles = distinct_titles(variants)
    rank = {name: number for number, name in enumerate(variants)}
    ordered = in_order({row["setting"] for row in rows}, settings)
    rows = sorted(
        rows, key=lambda row: (ordered.index(row["setting"]), rank.get(row["variant"], len(rank)), row["variant"])
    )
    for row in rows:
        title = titles.get(row["variant"], row["variant"])
        letter = variants.get(row["variant"], {}).get("mark")
        low, high = clopper_pearson(int(row["run_reward_wins"]), int(row["n_pairs"]))
        wins = f"{row['run_reward_wins']} of {row['n_pairs']}" + ("" if low != low else f"\n[{low:.2f}, {high:.2f}]")
        differs = row["variant"] != row["reference"]
        shown.append(
            [
                row["setting"],
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
    references = sorted({titles.get(row["reference"], row["reference"]) for row in rows})
    columns = ["setting", "variant", "seeds", "start", "final", "gain", "run reward"]
    columns += ["run reward,\ndifference", "seeds\nabove", "final,\ndifference", "note"]
    caption = (
        f"start, final: accuracy of the first and last checkpoint on the test problems ({_scale(rows)}). Run reward, "
        "the primary outcome: mean reward of the rollouts on training prompts, at the training's temperature, without "
        "the first steps, which all sample from the start (as many as the staleness). It is on another scale than "
        "accuracy, and the weights after the last updates (again as many as the staleness) sample in none of its "
        f"steps. Differences are to {', '.join(references)}, paired by seed. Square brackets: "
        f"{_brackets(rows)}; round ones: the values of two seeds, which are no test. Seeds above: exact interval of "
        "the rate."
    )
    if not any(line[-1] for line in shown):
        columns, shown = columns[:-1], [line[:-1] for line in shown]
    said = "\n".join(
        f"<p>{escape(told_apart([row for row in rows if row['setting'] == setting], titles))}</p>"
        for setting in ordered
    )
    return f"{markup.table(columns, shown, caption)}\n{said}"


def _scale(rows: Sequence[Mapping[str, str]]) -> str:
    """`lm-eval's avg@16, temperature 1, top-p 1`, settings named where they differ."""
    said: dict[str, list[str]] = {}
    for row in rows:
        names = {"temperature": row.get("temperature"), "top-p": row.get("top_p")}
        texts = [
            f"lm-eval's {row.get('metric') or 'avg@k'}",
            *(f"{name} {text}" for name, text in names.items() if text),
        ]
        settings = said.setdefault(", ".join(texts), [])
        settings += [row["setting"]] if row["setting"] not in settings else []
    return "; ".join(f"{text} in {', '.join(settings)}" if len(said) > 1 else text for text, settings in said.items())


def _brackets(rows: Sequence[Mapping[str, str]]) -> str:
    """`95 % t interval over seeds`, from the column that says `t 0.95`."""
    found = {row["interval"] for row in rows}
    said = []
    for interval in sorted(found):
        variant, _, level = interval.partition(" ")
        said.append(f"{float(level) * 100:g} % {'t' if variant == 't' else f'{variant} bootstrap'} interval over seeds")
    return ", ".join(said)


def told_apart(rows: Sequence[Mapping[str, str]], titles: Mapping[str, str]) -> str:
    """One sentence about a setting: which lines its primary outcome tells apart from the reference, and which not."""
    where, reference = rows[0]["setting"], titles.get(rows[0]["reference"], rows[0]["reference"])
    others = [row for row in rows if row["variant"] != row["reference"]]
    apart, alike, untested = [], [], []
    for row in others:
        title, low, high = titles.get(row["variant"], row["variant"]), *_limits_of(row, "run_reward_diff")
        if low != low:
            untested.append(f"{title} ({not_a_test(int(row['n_pairs']))})")
        elif low > 0 or high < 0:
            apart.append(f"{title} ({'higher' if low > 0 else 'lower'})")
        else:
            alike.append(title)
    parts = [
        f"told apart from {reference}: {'; '.join(apart) or 'none'}" if apart or alike else "",
        f"not told apart, which is not the same as equal: {'; '.join(alike)}" if alike else "",
        f"no interval: {'; '.join(untested)}" if untested else "",
    ]
    tested = len(apart) + len(alike)
    single = (
        f" Each of the {tested} intervals stands for itself, none is adjusted for the others." if tested > 1 else ""
    )
    said = " – ".join(filter(None, parts)) or "no other line to compare"
    return f"{where}, by run reward: {said}.{single}"


def _limits_of(row: Mapping[str, str], name: str) -> tuple[float, float]:
    return float(row[f"{name}_low"]), float(row[f"{name}_high"])


def table_section(path: Path, variants: Mapping[str, Any], settings: Sequence[str] | None = None) -> str:
    """A CSV as a table: the summary compactly, any other as it is, cut after LONGEST_TABLE rows."""
    rows = read_csv(path, "--table")
    if not rows:
        return f'<p class="muted">{escape(path.name)} is empty.</p>'
    if set(SUMMARY) <= set(rows[0]):
        return summary_table(rows, variants, settings)
    cut = f" First {LONGEST_TABLE} of {len(rows)} rows." if len(rows) > LONGEST_TABLE else ""
    cells = [list(row.values()) for row in rows[:LONGEST_TABLE]]
    shown = markup.table(list(rows[0]), cells, f"{path.name}.{cut}")
    return f"<details><summary>{escape(path.name)}</summary>\n{shown}\n</details>"


def figure_section(path: Path, number: int) -> str:
    """An inlined SVG with its caption."""
    drawing, title, description = markup.inline_svg(path, number)
    caption = f"<strong>Figure {number}. {escape(title)}.</strong> {escape(description)}"
    return f"<figure>\n{drawing}\n<figcaption>{caption}</figcaption>\n</figure>"


def provenance_section(variants: Mapping[str, Any]) -> str:
    """The legend of the marks, and the methods of this report with theirs."""
    legend = "".join(f"<li>{markup.mark(letter)} {escape(text)}</li>" for letter, text in MARKS.items())
    titles = distinct_titles(variants)
    rows = [[titles[name], name, f"[{entry.get('mark', '')}]"] for name, entry in variants.items()]
    methods = markup.table(["variant", "variant", "formula"], rows, "Methods of this report.") if rows else ""
    return f"<p>A letter says how sure a formula or constant is:</p>\n<ul>{legend}</ul>\n{methods}"


def _limits(path: Path | None, models: Sequence[Path]) -> Sequence[str]:
    trained = described(models)
    if path is None:
        return [LIMITS[0].format(models=trained), *LIMITS[1:]]
    texts = read_json(path, "--limits")
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise InputError(f"--limits: {path} must be a list of sentences")
    return [f"{texts[0]} Trained here: {trained}." if models else texts[0], *texts[1:]]


def build(args: argparse.Namespace) -> str:
    """The page as text."""
    variants = read_json(args.variants, "--variants") if args.variants else {}
    if not isinstance(variants, dict) or any(
        not isinstance(entry, dict) or entry.get("mark", "N") not in MARKS for entry in variants.values()
    ):
        raise InputError(f"{args.variants}: expected {{variant: {{title, mark of {list(MARKS)}}}}}")
    stated = _limits(args.limits, args.model)
    intro = f"<p>{escape(stated[0])} See <a href='#limits'>limits</a>.</p>"
    # The summary first: the others are folded raw data.
    ordered = sorted(args.table, key=lambda path: path.stem != "summary")
    tables = "\n".join(table_section(path, variants, args.settings) for path in ordered)
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
    sections.append(("provenance", "Provenance", provenance_section(variants)))
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
    parser.add_argument("--variants", type=Path, help="variants.json, for titles and marks")
    parser.add_argument("--derivations", type=Path, help="JSON of the proved formulas")
    parser.add_argument("--derivation-figure", type=Path, nargs="+", default=[], help="SVG files, with --derivations")
    parser.add_argument("--derivation-page", help="the proofs as a page: its place relative to the report")
    parser.add_argument("--agreement", type=Path, help="JSON of code against proofs, shown with --derivations")
    parser.add_argument("--manifest", type=Path, help="JSON of the settings")
    parser.add_argument(
        "--model", type=Path, nargs="+", default=[], help="folders of the models trained, for their size"
    )
    parser.add_argument("--settings", nargs="+", help="their order, that of the configuration (default by name)")
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
