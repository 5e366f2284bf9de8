"""The report is one page, the same bytes for the same inputs, and nothing from a file is taken for markup."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from html_outline import outline

from eval.figures.curves import main as curves_figure
from eval.report import main
from eval.tables import main as tables

Paths = tuple[list[str], list[str]]
HOSTILE = "<script>alert('x')</script> & \"quoted\""


@pytest.fixture
def inputs(cells: Path, paths: Paths, tmp_path: Path) -> dict[str, list[str]]:
    """All options of a full report over the small grid."""
    for name in ("scores", "curves", "summary"):
        output = str(tmp_path / f"{name}.csv")
        assert tables([name, "--runs", *paths[0], "--scores", *paths[1], "--output", output]) == 0
    for name in ("curves", "again"):
        figure = ["--curves", str(tmp_path / "curves.csv"), "--labels", str(cells / "labels.json")]
        assert curves_figure([*figure, "--output", str(tmp_path / f"{name}.svg")]) == 0
    theorem = {
        "name": "slope",
        "title": f"Slope {HOSTILE}",
        "mark": "S",
        "source": "Eq. 7",
        "statement": HOSTILE,
        "claims": ["d/dt KL = π_k − μ_k", {"label": "x", "text": "b < a"}],
        "assumptions": ["Σ μ = 1"],
        "proved": True,
        "error": None,
        "certificate": {"digits": 50, "worst_relative_error": "6.7e-34"},
        "steps": [{"reason": f"because {HOSTILE}", "left": "a", "relation": "=", "right": "b"}],
    }
    (tmp_path / "derivations.json").write_text(json.dumps({"theorems": [theorem]}))
    (tmp_path / "manifest.json").write_text(json.dumps({"panel": {"lag": 2, HOSTILE: [1, HOSTILE]}}))
    return {
        "title": [f"Toy {HOSTILE}"],
        "figure": [str(tmp_path / "curves.svg"), str(tmp_path / "again.svg")],
        "table": [str(tmp_path / "summary.csv"), str(tmp_path / "scores.csv")],
        "labels": [str(cells / "labels.json")],
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
        "0.610\n[0.600, 0.620]",
        "−0.100\n[−0.100, −0.100]",
        "DPPO Top-K KL [F]",
        "inferred: plausible, not seen in a source",
        "a stand-in, not the paper's scale",
        "Line: mean over 3 seeds. Band: lowest to highest seed.",
        "b < a",
        "panel.lag",
        "Numeric certificate: digits 50; worst relative error 6.7e-34.",
        "Proof, 1 steps",
        "1 of 1 formulas proved",
    ):
        assert piece in text, piece


def test_everything_is_escaped(inputs: dict[str, list[str]], tmp_path: Path) -> None:
    """Markup in a title, a theorem, a setting or a table shows as text; no script element exists."""
    scores = Path(inputs["table"][1])
    scores.write_text("panel,value\n" + '"' + HOSTILE.replace('"', '""') + '",1\n')
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
        ("labels", '{"a": {"mark": "X"}}', "mark of ['F', 'S', 'I', 'N']"),
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
