"""Tables of the token study as HTML, short enough to be read; the CSV files hold all rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from eval import markup
from eval.files import InputError
from eval.statistics import not_a_test
from eval.tokens.contrasts import FEW
from eval.tokens.open_questions import QUESTIONS
from eval.tokens.records import RUN
from eval.tokens.run_tables import CAUSES
from eval.tokens.study import MAIN_TEXTS

Row = Mapping[str, str]
WORDS = {
    "replicated": "✓ replicated",
    "direction only": "↗ direction only",
    "contradicted": "✗ contradicted",
    "underpowered": "? underpowered",
    "supported": "✓ supported",
    "not supported": "✗ not supported",
    "open": "? open",
    "not testable": "– not testable",
}
# Of the long tables: the paper's measure and radius, what the mask sees, all tokens.
SHOWN = {**MAIN_TEXTS, "subset": "all"}
# What a table must have, by the name of the function that shows it.
SEEDS = (*RUN, *SHOWN, "criterion", "outside", "disagreement", "unsafe_keep", "unsafe_keep_ratio", "gap")
COUNTED = (*RUN, "kept", "failed", *CAUSES)
# The criterion whose seeds are listed: the paper's own mask.
LISTED = "aggregated"


def between(row: Row, value: str, low: str, high: str) -> str:
    """A value with its interval from three columns, signed."""
    return markup.with_interval({"x": row[value], "x_low": row[low], "x_high": row[high]}, "x", signed=True)


def group(row: Row) -> str:
    """Setting and kind of update of a row, in the words of the verdicts."""
    update = f"own update of {row['variant']}" if row["update"] == "own" else f"{row['update']} update"
    return f"setting {row['setting']}, {update}"


CAPTION = (
    "Forward KL on the recorded top K, D > 0.15, all tokens. Unsafe-keep: of the tokens that only this criterion (or "
    "only the ratio) keeps, those whose divergence rose; gap, the primary outcome: their difference. Brackets: 95 % t "
    "interval over seeds, from 3 seeds on. p: permutation of signs over seeds. "
    "Last column: seeds for 80 % power at the paper's gap, from the spread seen. tokens_summary.csv holds the other "
    "measures and radii, parts of the tokens, and the truth over the whole vocabulary."
)


OPEN_CAPTION = (
    "Forward KL and the unmasked probe unless a row says otherwise. A difference is the first side minus the second, "
    "with its 95 % interval over seeds, not adjusted for the number of rows: an interval with 0 inside decides "
    f"nothing, and with fewer than {FEW} seeds an interval only describes. Of two gaps the lower one is better for the "
    "prediction, of two gains in accuracy the higher. docs/token_study.md discusses the results."
)


def summary(rows: Sequence[Row]) -> str:
    """Means over seeds by criterion, a table per setting."""
    chosen = _main(rows)
    columns = ["criterion", "seeds", "outside\na seed", "they\ndisagree", "unsafe-keep", "of the ratio", "gap"]
    columns += ["gap\nbelow 0", "p of\nthe gap", "sign accuracy,\ngain", "seeds for\n2.7 points"]
    parts = [f"<p>{escape(CAPTION)}</p>"]
    for kind in dict.fromkeys(map(group, chosen)):
        shown = [_means(row) for row in chosen if group(row) == kind]
        parts.append(markup.table(columns, shown, kind[0].upper() + kind[1:]))
        parts.append(f"<p>{escape(_tell_apart([row for row in chosen if group(row) == kind]))}</p>")
    return "\n".join(parts)


def _tell_apart(rows: Sequence[Row]) -> str:
    """Which criteria of a setting the gap tells apart from the ratio, and which not."""
    found: dict[str, list[str]] = {"told apart from the ratio": [], "not told apart, which is not equal": []}
    told, alike = found
    for row in rows:
        low, high = _value(row, "gap_low"), _value(row, "gap_high")
        if math.isnan(low):
            found.setdefault(not_a_test(int(row["n_used"])), []).append(row["criterion"])
        else:
            better = f"{row['criterion']} ({'fewer' if high < 0 else 'more'} unsafe)"
            found[told if low > 0 or high < 0 else alike].append(better if low > 0 or high < 0 else row["criterion"])
    said = " – ".join(f"{what}: {', '.join(names)}" for what, names in found.items() if names)
    return f"By the gap: {said}. No interval is adjusted for the others."


def _means(row: Row) -> list[str]:
    used = row["n_seeds"] if row["n_used"] == row["n_seeds"] else f"{row['n_used']} of {row['n_seeds']}"
    return [
        row["criterion"],
        used,
        _whole(row, "outside_per_seed"),
        markup.number(row["disagreement_share"]),
        markup.with_interval(row, "unsafe_keep"),
        markup.with_interval(row, "unsafe_keep_ratio"),
        markup.with_interval(row, "gap", signed=True),
        f"{row['wins']} of {row['n_used']}",
        markup.number(row["p_flip"]),
        markup.with_interval(row, "accuracy_gain", signed=True),
        row["seeds_needed"],
    ]


def seeds(rows: Sequence[Row]) -> str:
    """The single seeds of the paper's criterion, folded: what the first figure draws."""
    shown = [
        [
            group(row),
            row["seed"],
            row["outside"],
            row["disagreement"],
            *(markup.number(row[name]) for name in ("unsafe_keep", "unsafe_keep_ratio")),
            markup.number(row["gap"], signed=True),
        ]
        for row in _main(rows)
        if row["criterion"] == LISTED
    ]
    columns = ["setting", "seed", "outside", "they disagree", "unsafe-keep", "of the ratio", "gap"]
    table = markup.table(columns, shown, "Predicted direction with the aggregated tail against the ratio, per seed.")
    return f"<details><summary>single seeds</summary>\n{table}\n</details>"


def causes(rows: Sequence[Row]) -> str:
    """Why kept tokens failed, pooled over the seeds of a setting (shares of failures: no interval)."""
    kinds = list(dict.fromkeys(map(group, rows)))
    shown = []
    for kind in kinds:
        own = [row for row in rows if group(row) == kind]
        total = {name: sum(int(_value(row, name)) for row in own) for name in ("kept", "failed", *CAUSES)}
        shares = [f"{total[name] / total['failed']:.3f}" if total["failed"] else "–" for name in CAUSES]
        shown.append([kind, str(len(own)), str(total["kept"]), str(total["failed"]), *shares])
    told = "; ".join(f"{name.replace('_', ' ')}: {text}" for name, text in CAUSES.items())
    caption = (
        f"Of the tokens outside that the full prediction keeps, those whose D rose nevertheless, by cause. {told}."
    )
    names = [name.replace("_", "\n") for name in CAUSES]
    return markup.table(["setting", "seeds", "kept", "D rose", *names], shown, caption)


def open_questions(rows: Sequence[Row]) -> str:
    """A table per open question; what stands beside the paper's rate and mask is folded."""
    parts = [f"<p>{escape(OPEN_CAPTION)}</p>"]
    for question in dict.fromkeys(row["question"] for row in rows):
        own = [row for row in rows if row["question"] == question]
        # The paper's own rate and mask; a question about neither is shown whole.
        first = [row for row in own if row["quantity"] == "gap" and row["criterion"] == LISTED] or own
        more = [row for row in own if row not in first]
        asked = {row["axis"] for row in own}
        limits = [each.not_covered for each in QUESTIONS if each.name == question and each.axis in asked]
        caption = f"Not covered: {'; '.join(limits)}." if limits else ""
        parts.append(f"<h3>{escape(question)}</h3>\n{_contrasts(first, caption)}")
        if more:
            summary_ = f"{len(more)} more, of other criteria and quantities"
            parts.append(f"<details><summary>{summary_}</summary>\n{_contrasts(more, '')}\n</details>")
    return "\n".join(parts)


def _contrasts(rows: Sequence[Row], caption: str) -> str:
    columns = ["contrast", "quantity", "criterion", "first", "second", "value", "seeds"]
    return markup.table(columns, [_contrast(row) for row in rows], caption)


def _contrast(row: Row) -> list[str]:
    levels = ["" if row[name] in ("", "nan") else markup.number(row[name]) for name in ("level_a", "level_b")]
    value = (
        row["value"]
        if row["kind"] == "smallest"
        else markup.with_interval(
            {"x": row["value"], "x_low": row["low"], "x_high": row["high"]}, "x", signed=row["kind"] != "share"
        )
    )
    seeds = f"{row['n_seeds']} {row['resampled']}"
    if row["n_smaller"] != row["n_seeds"]:
        seeds += f", the smaller side {row['n_smaller']}"
    return [row["contrast"], row["quantity"].replace("_", " "), row["criterion"] or "–", *levels, value, seeds]


def mismatch(rows: Sequence[Row]) -> str:
    """The table of precision pairs as it is, numbers shortened to three digits."""
    columns = list(rows[0])
    return markup.table(columns, [[_short(row[name]) for name in columns] for row in rows], "By precision pair.")


def _main(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if all(row[name] == text for name, text in SHOWN.items())]


def _value(row: Row, name: str) -> float:
    try:
        return float(row[name])
    except ValueError as error:
        raise InputError(f"{name} = {row[name]!r}: allowed is a number") from error


def _whole(row: Row, name: str) -> str:
    value = _value(row, name)
    return "–" if math.isnan(value) else f"{value:.0f}"


def _short(text: str) -> str:
    try:
        value = float(text)
    except ValueError:
        return text
    return text if value.is_integer() else f"{value:.3g}"
