"""Definition and property tests of the token study's page, on made-up runs: what it must show is there, in words and
numbers worked out of its tables; it is one page, the same bytes for the same inputs, and takes no file for markup.

Does not cover its look (that takes an eye), the figures (test_figures.py has the style) or the workflow that makes it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from html_outline import outline

from eval.files import read_csv, write_csv
from eval.tokens import open_questions, page_tables, summary, verdicts
from eval.tokens.figures import staleness as token_staleness
from eval.tokens.figures import unsafe_keep as token_unsafe_keep
from eval.tokens.page import main
from eval.tokens.rates import rates

HOSTILE = "<script>alert('x')</script> & \"quoted\""
SVG = '<svg xmlns="http://www.w3.org/2000/svg"><path id="a" d="M0 0"/></svg>'
Options = dict[str, list[str]]


def seed_rows() -> list[dict[str, Any]]:
    """Six probe runs, three with an own update, of 400 tokens outside; D of what the prediction keeps always falls."""
    rows = []
    for update, variant, seeds in (("unmasked", "dppo_topk_kl", 6), ("own", "predictive_aggregated", 3)):
        for seed in range(seeds):
            random = np.random.default_rng(seed)
            ratio = random.random(400) < 0.5
            outward = ratio ^ (random.random(400) < 0.1)
            change = np.where(~outward & ratio, -1.0, random.choice([-1.0, 1.0], size=400))
            key = {"setting": "A", "update": update, "variant": variant, "seed": seed, "measure": "forward_kl"}
            key |= {"delta": 0.15, "truth": "reduced", "criterion": "aggregated", "subset": "all", "active": 400}
            rows.append(
                {
                    **key,
                    "decided_share": 0.9,
                    "top_mass": 0.99,
                    **rates(np.full(400, True), outward, ratio, change).row(),
                }
            )
    return rows


@pytest.fixture
def inputs(tmp_path: Path) -> Options:
    """All options of a page, its tables as the study writes them."""
    rows = seed_rows()
    means = summary.summarise(rows)
    write_csv(tmp_path / "tokens_seeds.csv", list(rows[0]), rows)
    write_csv(tmp_path / "tokens_summary.csv", summary.COLUMNS, means)
    write_csv(tmp_path / "verdicts.csv", verdicts.COLUMNS, verdicts.rows(means))
    causes = "setting,update,variant,seed,outside,kept,failed,reversed,curvature,others,batch_curvature\n"
    causes += "A,unmasked,x,0,9,5,3,2,1,0,0\nA,unmasked,x,1,9,4,1,0,1,0,0\n"
    (tmp_path / "tokens_causes.csv").write_text(causes)
    blank = dict.fromkeys(open_questions.COLUMNS, "") | {"n_seeds": 6, "n_smaller": 6, "resampled": "paired seeds"}
    shared = blank | {"question": "K", "axis": "retained K", "criterion": "aggregated"}
    numbers = {"value": -0.25, "low": -0.5, "high": 0.125, "level_a": -0.5, "level_b": -0.25}
    opened = [
        shared | {"contrast": "K = 1 against K = V", "kind": "difference", "quantity": "gap"} | numbers,
        shared | {"contrast": "smallest K", "kind": "smallest", "quantity": "gap", "value": "10"},
        shared | {"contrast": "K = 1", "kind": "share", "quantity": "wrong_sign", "value": 0.0625, "n_smaller": 3},
        blank | {"question": "mu", "contrast": HOSTILE, "kind": "share", "quantity": "wrong_sign", "value": 0.5},
    ]
    write_csv(tmp_path / "tokens_open.csv", open_questions.COLUMNS, opened)
    (tmp_path / "a.svg").write_text(SVG)
    tables = ("tokens_seeds", "tokens_causes", "tokens_summary", "tokens_open")
    return {
        "title": [f"Study {HOSTILE}"],
        "verdicts": [str(tmp_path / "verdicts.csv")],
        "table": [str(tmp_path / f"{name}.csv") for name in tables],
        "figure": [str(tmp_path / "a.svg"), str(tmp_path / "a.svg")],
        "settings": ['{"settings": {"A": {"lr": 0.0003, "tokens": {"every": 3}}}}'],
    }


def build(inputs: Options, output: Path, *flags: str) -> int:
    """Run the page's command."""
    given = [text for name, values in inputs.items() for text in (f"--{name}", *values)]
    return main([*given, *flags, "--output", str(output)])


def test_page_is_whole_and_self_contained(inputs: Options, tmp_path: Path) -> None:
    assert build(inputs, tmp_path / "p.html") == 0
    page, text = outline(tmp_path / "p.html"), (tmp_path / "p.html").read_text()
    assert len(page.ids) == len(set(page.ids)) and page.tags.count("svg") == 2
    assert {"verdicts", "open", "figures", "rates", "provenance", "settings", "limits"} <= set(page.ids)
    assert "mismatch" not in page.ids, "a section without a table"
    assert not re.findall(r"(?:src|href)=[\"'](?!#)", text) and "@import" not in text and "url(http" not in text
    assert "script" not in page.tags and page.text.count(HOSTILE) == 3, "title, heading and a contrast"


def test_same_inputs_same_bytes(inputs: Options, tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert build(inputs, tmp_path / f"{name}.html") == 0
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()
    assert not re.search(r"20\d\d-\d\d-\d\d", (tmp_path / "a.html").read_text())


def test_verdicts_are_said_in_words_and_colour(inputs: Options, tmp_path: Path) -> None:
    """Each row: claim, mark, paper, ours with its interval, verdict; an absent number is a dash."""
    rows = read_csv(tmp_path / "verdicts.csv", "x")
    for row, word in zip(rows, page_tables.WORDS, strict=True):
        row["verdict"] = word
    write_csv(tmp_path / "verdicts.csv", verdicts.COLUMNS, rows)
    assert build(inputs, tmp_path / "p.html") == 0
    page, text = outline(tmp_path / "p.html").text, (tmp_path / "p.html").read_text()
    for word, shown in page_tables.WORDS.items():
        style = word.replace(" ", "-")
        assert text.count(f'<span class="verdict {style}">{shown}</span>') == 1
        assert f".verdict.{style}" in text
    assert text.index("<h3>Claims of the paper</h3>") < text.index("<h3>Own hypotheses</h3>")
    gap = next(row for row in rows if row["claim"].endswith("aggregated tail"))
    low, high = (f"{float(gap[end]):+.3f}".replace("-", "−") for end in ("low", "high"))
    assert f"[{low}, {high}]" in page and "−0.027" in page
    assert "setting A, own update of predictive_aggregated" in page and "setting A, unmasked update" in page
    assert ">nan<" not in text


def test_rates_and_causes_are_those_of_the_tables(inputs: Options, tmp_path: Path) -> None:
    """Pooled over both seeds 4 of 9 kept tokens failed, two each way; a table per setting, seeds one by one."""
    assert build(inputs, tmp_path / "p.html") == 0
    text = (tmp_path / "p.html").read_text()
    causes = re.search(r"<tr><td>setting A, unmasked update</td><td class=\"number\">2</td>.*?</tr>", text)
    assert causes is not None
    assert re.findall(r">([\d.]+)<", causes.group()) == ["2", "9", "4", "0.500", "0.500", "0.000", "0.000"]
    assert "<caption>Setting A, unmasked update</caption>" in text
    assert text.count("<p>By the gap: told apart from the ratio: aggregated (fewer unsafe).") == 2
    listed = text.split("<summary>single seeds</summary>")[1].split("</details>")[0]
    assert listed.count("<tr>") == 1 + 9


def test_open_questions_are_tables_of_numbers_the_papers_mask_first(inputs: Options, tmp_path: Path) -> None:
    """Levels, difference with its interval and seeds; what the numbers do not cover in the caption; the rest folded."""
    assert build(inputs, tmp_path / "p.html") == 0
    opened = (tmp_path / "p.html").read_text().split('<section id="open">')[1].split("</section>")[0]
    first, more = opened.split("<h3>K</h3>")[1].split("<summary>1 more, of other criteria and quantities</summary>")
    assert f"Not covered: {open_questions.K.not_covered}." in first and "Not covered" not in more
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", row, re.S) for row in re.findall(r"<tr><td.*?</tr>", first, re.S)]
    assert cells == [
        ["K = 1 against K = V", "gap", "aggregated", "−0.500", "−0.250", "−0.250\n[−0.500, +0.125]", "6 paired seeds"],
        ["smallest K", "gap", "aggregated", "", "", "10", "6 paired seeds"],
    ]
    assert "0.062" in more and "6 paired seeds, the smaller side 3" in more


def test_limits_are_those_of_the_tier(inputs: Options, tmp_path: Path) -> None:
    """What the paper does not say is a limit everywhere; the toy world's only where it is."""
    said = {}
    for name, flags in (("toy", ["--toy"]), ("own", [])):
        assert build(inputs, tmp_path / f"{name}.html", *flags) == 0
        said[name] = outline(tmp_path / f"{name}.html").text
        assert "the model, precision, learning rate, mini-batch and kind of update" in said[name]
    assert "a model sorting numbers" in said["toy"] and "sorting numbers" not in said["own"]
    assert "settings.A.tokens.every" in said["own"]


def test_a_table_of_another_name_is_shown_as_it_is(inputs: Options, tmp_path: Path) -> None:
    (tmp_path / "tokens_more.csv").write_text("engine,share\nvllm,0.25\n")
    assert build({**inputs, "table": [str(tmp_path / "tokens_more.csv")]}, tmp_path / "p.html") == 0
    text = (tmp_path / "p.html").read_text()
    assert "<summary>tokens_more.csv</summary>" in text and ">vllm</td>" in text


@pytest.mark.parametrize(
    ("option", "text", "message"),
    [
        ("verdicts", "claim\nx\n", "lacks column(s)"),
        ("verdicts", ",".join(verdicts.COLUMNS) + "\n,,,1,1,1,1,0,3,proved,\n", "verdict = 'proved': allowed are"),
        ("verdicts", ",".join(verdicts.COLUMNS) + "\na,b\n", "line 2 has not the 11 cells of line 1"),
        ("table", "setting,update\nA,own\n", "lacks column(s) ['variant', 'measure', 'delta', 'truth'"),
        ("table", ",".join(summary.COLUMNS) + "\n1,2\n", "line 2 has not the"),
    ],
)
def test_bad_inputs_are_named(
    option: str, text: str, message: str, inputs: Options, tmp_path: Path, capsys: Any
) -> None:
    bad = tmp_path / "bad" / "tokens_summary.csv"
    bad.parent.mkdir()
    bad.write_text(text)
    assert build({**inputs, option: [str(bad)]}, tmp_path / "p.html") == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1 and not (tmp_path / "p.html").exists()


@pytest.mark.parametrize("name", ["tokens_seeds", "tokens_summary", "tokens_causes", "tokens_open"])
@pytest.mark.parametrize("given", ["tokens_seeds", "tokens_summary", "tokens_causes", "tokens_open"])
def test_a_table_under_the_name_of_another(name: str, given: str, inputs: Options, tmp_path: Path, capsys: Any) -> None:
    """Every pair: the table's own is shown, each other one is refused by the columns that it lacks."""
    copy = tmp_path / "copy" / f"{name}.csv"
    copy.parent.mkdir()
    copy.write_bytes((tmp_path / f"{given}.csv").read_bytes())
    assert build({**inputs, "table": [str(copy)]}, tmp_path / "p.html") == (0 if name == given else 2)
    if name != given:
        assert f"--table: {copy} lacks column(s)" in capsys.readouterr().err


def test_texts_where_numbers_belong(inputs: Options, tmp_path: Path, capsys: Any) -> None:
    """A count that is none is named with its table and column."""
    path = tmp_path / "tokens_causes.csv"
    path.write_text(path.read_text().replace("9,5,3", "9,five,3"))
    assert build(inputs, tmp_path / "p.html") == 2
    assert f"{path}: kept = 'five': allowed is a number" in capsys.readouterr().err
    # A folder in the page's place.
    (tmp_path / "p").mkdir()
    assert build({**inputs, "table": [str(tmp_path / "tokens_seeds.csv")]}, tmp_path / "p") == 2
    assert "Is a directory" in capsys.readouterr().err


def test_names_of_settings_and_labels_are_text(tmp_path: Path) -> None:
    """Markup and formulas in the names of a run are shown as they are, in tables, answers and figures; one seed."""
    name = '<b>$\\frac{a$ & "b"'
    rows = [row | {"setting": name, "variant": name} for row in seed_rows() if row["seed"] == 0]
    rows += [row | {"subset": "age 8"} for row in rows]
    write_csv(tmp_path / "tokens_seeds.csv", list(rows[0]), rows)
    means = summary.summarise(rows)
    write_csv(tmp_path / "tokens_summary.csv", summary.COLUMNS, means)
    write_csv(tmp_path / "verdicts.csv", verdicts.COLUMNS, verdicts.rows(means))
    drawn = {"unsafe_keep": token_unsafe_keep, "staleness": token_staleness}
    for figure, module in drawn.items():
        given = ["--table", str(tmp_path / "tokens_seeds.csv"), "--output", str(tmp_path / f"{figure}.svg")]
        assert module.main(given) == 0
    files = {"table": ["tokens_seeds.csv", "tokens_summary.csv"], "figure": [f"{figure}.svg" for figure in drawn]}
    shown = {key: [str(tmp_path / path) for path in paths] for key, paths in files.items()}
    assert build({"title": ["t"], "verdicts": [str(tmp_path / "verdicts.csv")], **shown}, tmp_path / "p.html") == 0
    page = outline(tmp_path / "p.html")
    assert "b" not in page.tags and page.text.count(f"setting {name}") > 4 and ">nan<" not in page.text


def test_figures_refuse_what_is_no_table_of_theirs(inputs: Options, tmp_path: Path, capsys: Any) -> None:
    """A table of means has the rates' names too, and is no table of seeds; a text is no number."""
    for table, message in (("summary", "lacks column(s) ['seed']"), ("seeds", "gap = 'x': allowed is a number")):
        path = tmp_path / f"tokens_{table}.csv"
        rows = read_csv(path, "x")
        write_csv(path, list(rows[0]), [row | ({"gap": "x"} if table == "seeds" else {}) for row in rows])
        assert token_unsafe_keep.main(["--table", str(path), "--output", str(tmp_path / "f.svg")]) == 2
        assert message in capsys.readouterr().err and not (tmp_path / "f.svg").exists()
