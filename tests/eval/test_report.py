"""The report is one page, the same bytes for the same inputs, and nothing from a file is taken for markup."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from html_outline import outline

from eval.figures.curves import main as curves_figure
from eval.files import write_csv
from eval.models import _millions, described
from eval.report import main, table_section
from eval.tables import main as tables
from eval.tables import summary_columns

Paths = tuple[list[str], list[str]]
HOSTILE = "<script>alert('x')</script> & \"quoted\""


@pytest.fixture
def inputs(results: Path, paths: Paths, tmp_path: Path) -> dict[str, list[str]]:
    """All options of a full report over the small grid."""
    for name in ("scores", "curves", "summary"):
        output = str(tmp_path / f"{name}.csv")
        assert tables([name, "--runs", *paths[0], "--scores", *paths[1], "--output", output]) == 0
    figure = ["--curves", str(tmp_path / "curves.csv"), "--variants", str(results / "variants.json")]
    assert curves_figure([*figure, "--output", str(tmp_path / "curves.svg")]) == 0
    shutil.copy(tmp_path / "curves.svg", tmp_path / "again.svg")
    theorem = {
        "name": "slope",
        "title": f"Slope {HOSTILE}",
        "mark": "S",
        "source": "Eq. 7",
        "statement": HOSTILE,
        "claims": ["d/dt KL = π_k − μ_k", {"variant": "x", "text": "b < a"}],
        "assumptions": ["Σ μ = 1"],
        "proved": True,
        "error": None,
        "certificate": {"digits": 50, "worst_relative_error": "6.7e-34"},
        "steps": [{"reason": f"because {HOSTILE}", "left": "a", "relation": "=", "right": "b"}],
    }
    (tmp_path / "derivations.json").write_text(json.dumps({"theorems": [theorem]}))
    (tmp_path / "manifest.json").write_text(json.dumps({"setting": {"staleness": 2, HOSTILE: [1, HOSTILE]}}))
    return {
        "title": [f"Toy {HOSTILE}"],
        "figure": [str(tmp_path / "curves.svg"), str(tmp_path / "again.svg")],
        "table": [str(tmp_path / "summary.csv"), str(tmp_path / "scores.csv")],
        "variants": [str(results / "variants.json")],
        "derivations": [str(tmp_path / "derivations.json")],
        "manifest": [str(tmp_path / "manifest.json")],
    }


def build(inputs: dict[str, list[str]], output: Path) -> int:
    """Run the report's command."""
    given = [text for name, values in inputs.items() for text in (f"--{name}", *values)]
    return main([*given, "--output", str(output)])


def test_page_is_whole(inputs: dict[str, list[str]], tmp_path: Path) -> None:
    """Well nested, unique ids, two inlined figures, all sections, nothing fetched from outside."""
    assert build(inputs, tmp_path / "r.html") == 0
    page, text = outline(tmp_path / "r.html"), (tmp_path / "r.html").read_text()
    assert len(page.ids) == len(set(page.ids))
    assert page.tags.count("svg") == 2 and "img" not in page.tags
    assert {"results", "derivations", "provenance", "settings", "limits"} <= set(page.ids)
    assert not re.findall(r'(?:src|href)="(?!#)', text) and "@import" not in text
    for reference in re.findall(r"url\(#([^)]+)\)", text) + re.findall(r'href="#([^"]+)"', text):
        assert reference in page.ids


def test_content(inputs: dict[str, list[str]], tmp_path: Path) -> None:
    """Numbers with intervals, titles with marks, the legend, the limits and the caption are on the page."""
    assert build(inputs, tmp_path / "r.html") == 0
    text = outline(tmp_path / "r.html").text
    for piece in (
        "0.610\n[0.585, 0.635]",
        "−0.100\n[−0.100, −0.100]",
        "DPPO Top-K KL [F]",
        "inferred: plausible, not seen in a source",
        "a stand-in, not the paper's scale",
        "Line: mean over 3 seeds. Band: lowest to highest seed.",
        "b < a",
        "setting.staleness",
        "Numeric certificate: digits 50; worst relative error 6.7e-34.",
        "Proof, 1 steps",
        "1 of 1 formulas proved",
    ):
        assert piece in text, piece


def test_everything_is_escaped(inputs: dict[str, list[str]], tmp_path: Path) -> None:
    """Markup in a title, a theorem, a setting or a table shows as text; no script element exists."""
    scores = Path(inputs["table"][1])
    scores.write_text("setting,value\n" + '"' + HOSTILE.replace('"', '""') + '",1\n')
    assert build(inputs, tmp_path / "r.html") == 0
    page = outline(tmp_path / "r.html")
    assert "script" not in page.tags
    assert page.text.count("<script>alert('x')</script>") >= 6


def test_proofs_may_stand_on_a_page_of_their_own(inputs: dict[str, list[str]], tmp_path: Path) -> None:
    """Links instead of the steps; figures of the derivations come in their section, numbered on."""
    drawing = inputs["figure"].pop()
    given = {**inputs, "derivation-figure": [drawing], "derivation-page": ["derivations/all of it.html"]}
    assert build(given, tmp_path / "r.html") == 0
    text = (tmp_path / "r.html").read_text()
    assert 'href="derivations/all%20of%20it.html"' in text
    assert '<a href="derivations/all%20of%20it.html#slope">Proof, 1 steps</a>' in text and "<ol>" not in text
    assert text.index("Figure 1.") < text.index('<section id="derivations">') < text.index("Figure 2.")


def test_same_inputs_same_bytes(inputs: dict[str, list[str]], tmp_path: Path) -> None:
    """Two runs give the same bytes, and no date."""
    assert build(inputs, tmp_path / "a.html") == 0 and build(inputs, tmp_path / "b.html") == 0
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()
    assert not re.search(r"20\d\d-\d\d-\d\d", (tmp_path / "a.html").read_text())


def test_reference_differs_from_itself_by_a_dash(inputs: dict[str, list[str]], tmp_path: Path) -> None:
    """The reference's own difference is not a result, and an undefined number is a dash, never `nan`."""
    assert build(inputs, tmp_path / "r.html") == 0
    text = (tmp_path / "r.html").read_text()
    (row,) = re.findall(r"<tr><td>B</td><td>DPPO.*?</tr>", text, flags=re.S)
    assert row.count(">–<") == 3
    assert ">nan<" not in text


def test_refuted_formula_is_not_hidden(inputs: dict[str, list[str]], tmp_path: Path) -> None:
    """A theorem that failed is counted, and its error shown."""
    content = json.loads(Path(inputs["derivations"][0]).read_text())
    content["theorems"].append({**content["theorems"][0], "proved": False, "error": "left and right differ by μ"})
    Path(inputs["derivations"][0]).write_text(json.dumps(content))
    assert build(inputs, tmp_path / "r.html") == 0
    text = outline(tmp_path / "r.html").text
    assert "1 of 2 formulas proved" in text
    assert text.count("REFUTED: left and right differ by μ") == 2


def test_limits_can_be_stated_anew(inputs: dict[str, list[str]], tmp_path: Path) -> None:
    """A user's own model is no toy world: the sentences come from a file."""
    (tmp_path / "limits.json").write_text(json.dumps(["One benchmark only."]))
    assert build({**inputs, "limits": [str(tmp_path / "limits.json")]}, tmp_path / "r.html") == 0
    text = outline(tmp_path / "r.html").text
    assert "One benchmark only." in text and "stand-in" not in text


@pytest.mark.parametrize(
    "drawing",
    [
        "<svg><script>x</script></svg>",
        '<svg onload="x"></svg>',
        '<svg><a href="https://example.org">x</a></svg>',
        '<svg><image href="#a"/></svg>',
        "<svg><style>@import 'https://example.org/a.css';</style></svg>",
        '<svg><rect fill="url(https://example.org/a)"/></svg>',
        "<svg></svg></section><h1>x</h1>",
        "<p><svg></svg></p>",
        "not a drawing",
    ],
)
def test_only_plain_drawings_are_inlined(
    drawing: str, inputs: dict[str, list[str]], tmp_path: Path, capsys: Any
) -> None:
    """Scripts, handlers, outside links and embedded pictures are refused, with the file's name."""
    (tmp_path / "bad.svg").write_text(drawing)
    assert build({**inputs, "figure": [str(tmp_path / "bad.svg")]}, tmp_path / "r.html") == 2
    assert "bad.svg" in capsys.readouterr().err
    assert not (tmp_path / "r.html").exists()


@pytest.mark.parametrize(
    ("option", "text", "message"),
    [
        ("derivations", "7", "expected an object with a list of theorems"),
        ("derivations", '{"theorems": []}', "expected an object with a list of theorems"),
        ("derivations", '{"theorems": [{"title": "x"}]}', "theorem 0: lacks ['mark', "),
        ("manifest", "{", "is not JSON"),
        ("variants", '{"a": {"mark": "X"}}', "mark of ['F', 'S', 'I', 'N']"),
        ("limits", "[]", "must be a list of sentences"),
    ],
)
def test_bad_inputs(
    option: str, text: str, message: str, inputs: dict[str, list[str]], tmp_path: Path, capsys: Any
) -> None:
    """One line that names the file."""
    (tmp_path / "bad.json").write_text(text)
    assert build({**inputs, option: [str(tmp_path / "bad.json")]}, tmp_path / "r.html") == 2
    error = capsys.readouterr().err
    assert message in error and "bad.json" in error


def model_of(folder: Path, **tensors: tuple[int, ...]) -> str:
    """A model folder whose safetensors file holds float32 zeros of these shapes."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir()
    save_file({name: torch.zeros(shape) for name, shape in tensors.items()}, folder / "model.safetensors")
    return str(folder)


def test_the_size_is_that_of_the_models(inputs: dict[str, list[str]], tmp_path: Path) -> None:
    """Counted from the files: one model, several, one without safetensors; in limits of the toy world and others."""
    small = model_of(tmp_path / "small", a=(100, 1000), b=(40, 1000))
    large = model_of(tmp_path / "large", a=(1200, 1000))
    (tmp_path / "bin").mkdir()
    assert described([]) == "a model" and described([tmp_path / "bin"]) == "a model"
    assert build({**inputs, "model": [small]}, tmp_path / "r.html") == 0
    assert "Trained here: a model of 0.14 million parameters, sorting numbers" in outline(tmp_path / "r.html").text
    (tmp_path / "limits.json").write_text(json.dumps(["One benchmark only."]))
    own = {**inputs, "model": [small, large], "limits": [str(tmp_path / "limits.json")]}
    assert build(own, tmp_path / "r.html") == 0
    text = outline(tmp_path / "r.html").text
    assert "One benchmark only. Trained here: models of 0.14 to 1.2 million parameters." in text
    assert (
        _millions([134_515_008]) == "135 million" and _millions([1_700_000_000, 30_000_000_000]) == "1.7 to 30 billion"
    )


@pytest.mark.parametrize("content", [b"", b"\x05\0\0\0\0\0\0\0nothing", b"\x02\0\0\0\0\0\0\0[]"])
def test_a_broken_model_file_is_named(
    content: bytes, inputs: dict[str, list[str]], tmp_path: Path, capsys: Any
) -> None:
    """One line; so is a folder that is not there."""
    (tmp_path / "m").mkdir()
    (tmp_path / "m/model.safetensors").write_bytes(content)
    assert build({**inputs, "model": [str(tmp_path / "m")]}, tmp_path / "r.html") == 2
    assert "model.safetensors is not a safetensors file" in capsys.readouterr().err
    assert build({**inputs, "model": [str(tmp_path / "gone")]}, tmp_path / "r.html") == 2
    assert "no such folder" in capsys.readouterr().err


def summary_of(tmp_path: Path, *rows: dict[str, Any]) -> str:
    """HTML of a summary with these changes to a row that has nothing to say."""
    base: dict[str, Any] = dict.fromkeys(summary_columns(), "0") | {
        "setting": "B",
        "reference": "ref",
        "interval": "t 0.95",
    }
    base |= {"metric": "avg@16", "temperature": "", "top_p": "", "n_pairs": "3", "note": ""}
    base |= {name: "" for name in base if name.endswith("_values")}
    write_csv(tmp_path / "s.csv", summary_columns(), [{**base, **row} for row in rows])
    return table_section(tmp_path / "s.csv", {}, ["second", "first"])


def test_the_table_says_which_lines_are_told_apart(tmp_path: Path) -> None:
    """By the interval of the primary outcome: below, above, around 0, and none; each setting has its sentence."""
    limits = {"low": ("-0.2", "-0.1"), "high": ("0.1", "0.2"), "same": ("-0.1", "0.1"), "few": ("nan", "nan")}
    rows: list[dict[str, Any]] = [{"variant": "ref"}]
    for name, (low, high) in limits.items():
        rows.append({"variant": name, "run_reward_diff_low": low, "run_reward_diff_high": high})
    rows[-1]["n_pairs"] = "2"
    shown = summary_of(tmp_path, *rows)
    assert (
        "<p>B, by run reward: told apart from ref: high (higher); low (lower) – not told apart, which is not the same "
        "as equal: same – no interval: few (2 seeds: not a test). Each of the 3 intervals stands for itself, none is "
        "adjusted for the others.</p>"
    ) in shown
    assert "Run reward, the primary outcome" in shown and "95 % t interval over seeds" in shown
    assert "expanded" not in shown


def test_two_seeds_show_their_values(tmp_path: Path) -> None:
    """Round brackets with both, never square ones; wins have the exact interval."""
    row = {"variant": "m", "final": "0.5", "final_low": "nan", "final_high": "nan", "final_values": "0.4; 0.6"}
    shown = summary_of(tmp_path, {"variant": "ref"}, {**row, "n_pairs": "2", "run_reward_wins": "2"})
    assert "0.500\n(0.400, 0.600)" in shown and "2 of 2\n[0.16, 1.00]" in shown


def test_settings_and_temperatures_are_those_of_the_configuration(tmp_path: Path) -> None:
    """In the order given; a temperature beside the accuracy, by setting where they differ, and no word where
    unknown."""
    first, second = (
        {"setting": name, "variant": "ref", "temperature": t} for name, t in (("first", "1"), ("second", "0.5"))
    )
    shown = summary_of(tmp_path, first, second)
    assert shown.index("<td>second</td>") < shown.index("<td>first</td>")
    assert "lm-eval&#x27;s avg@16, temperature 0.5 in second; lm-eval&#x27;s avg@16, temperature 1 in first" in shown
    assert "(lm-eval&#x27;s avg@16)" in summary_of(tmp_path, {"variant": "ref"})


def test_titles_that_collide_are_told_apart_in_the_report(inputs: dict[str, list[str]], tmp_path: Path) -> None:
    """Two variants of one title: table, legend and the sentence about differences name the option that differs."""
    same = {"title": "DRPO", "mark": "F"}
    variants = {name: {**same, "options": {"delta": d}} for name, d in (("pg_is", 0.1), ("dppo_topk_kl", 0.2))}
    Path(inputs["variants"][0]).write_text(json.dumps(variants))
    assert build(inputs, tmp_path / "r.html") == 0
    text = outline(tmp_path / "r.html").text
    assert "DRPO, delta 0.1 [F]" in text and "Differences are to DRPO, delta 0.2, paired by seed" in text
