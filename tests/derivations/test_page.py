"""definition: LaTeX to MathML, and the page of all proofs: complete, well-formed, self-contained, the same every time.

Not covered: how a browser draws it.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import pytest

import derivations.theorems  # noqa: F401  (registers them)
from derivations import report, theorem
from derivations.mathml import MathError, mathml, prose
from derivations.page import as_page


def shape(latex: str) -> str:
    """The element tree in brackets, with texts."""

    def write(element: ElementTree.Element) -> str:
        inner = (element.text or "") + "".join(map(write, element))
        return inner if element.tag in ("math", "mrow", "mi", "mo", "mn") else f"{element.tag}({inner})"

    return write(ElementTree.fromstring(mathml(latex)))


@pytest.mark.parametrize(
    ("latex", "expected"),
    [
        (r"\pi_{k} - \mu_k", "msub(πk)−msub(μk)"),
        (r"\frac{a}{b^{2}}", "mfrac(amsup(b2))"),
        (r"\sqrt{x} + \sqrt[3]{y}", "msqrt(x)+mroot(y3)"),
        (r"\sum_{i \in S} \pi_{i}^{2}", "munder(∑i∈S)msubsup(πi2)"),
        (r"\left(x\right)^{2}", "msup((x)2)"),
        (r"\left. y \right|_{\substack{ c=0 }}", "msub(y|c=0)"),
        (r"\log{\left(\frac{a}{b} \right)}", "log(mfrac(ab))"),
        (r"\mathbf{1}[i=k]", "𝟏[i=k]"),
        (r"\operatorname{sign}{\left(x \right)}", "sign(x)"),
        (r"\mathrm{KL}(\mu\|\pi)", "KL(μ‖π)"),
        (r"\text{global term} = 1", "mtext(global\u00a0term)=1"),
        (r"\tilde{D}", "mover(D~)"),
        (r"\begin{cases} 1 & \text{if} \\ 0 \end{cases}", "{mtable(mtr(mtd(1)mtd(mtext(if)))mtr(mtd(0)))"),
        (r"a < b, 0.5 \le c", "a<b,0.5≤c"),
        (r"f'", "msup(f′)"),
    ],
)
def test_latex_becomes_this_tree(latex, expected):
    assert shape(latex) == expected


@pytest.mark.parametrize(
    ("latex", "message"),
    [
        (r"\oint x", r"not among the macros"),
        (r"\frac{a}", "too early"),
        (r"\frac a b", "where a group in braces is expected"),
        (r"{a", "too early"),
        (r"a}", "has no partner"),
        (r"\left( a", "too early"),
        (r"\begin{matrix} a \end{matrix}", "environment 'matrix' is not known"),
        (r"_a", "where a value is expected"),
    ],
)
def test_what_cannot_be_shown_is_an_error(latex, message):
    with pytest.raises(MathError, match=message):
        mathml(latex)


def test_prose_escapes_text_and_sets_mathematics():
    html = prose("a < b & $x_1$")
    assert html.startswith("a &lt; b &amp; <math") and "<msub>" in html
    with pytest.raises(MathError, match="odd number of dollar signs"):
        prose("$x")


@pytest.fixture(scope="module")
def results():
    """Two real theorems and one refuted: the whole set is made by tests/derivations/test_command.py."""
    good = theorem.get("uniform_tail")
    wrong = good.with_claim("direction", -good.claim("direction"))
    return [report.run(theorem.get("softmax_step")), report.run(theorem.get("tail_gap")), report.run(wrong)]


def test_page_is_well_formed_and_self_contained(results):
    page = as_page(results)
    tree = ElementTree.fromstring(page.removeprefix("<!DOCTYPE html>"))
    ids = {element.get("id") for element in tree.iter() if element.get("id")}
    assert {"setting", "method", "softmax_step", "tail_gap", "uniform_tail"} <= ids
    assert not re.findall(r'(?:src|href)="(?!#)', page) and "<script" not in page and "@import" not in page
    assert all(target in ids for target in re.findall(r'href="#([^"]+)"', page))


def test_page_says_everything_about_a_theorem(results):
    page = as_page(results)
    for piece in (
        "3 theorems behind the losses of this project, 2 of them proved and certified",
        "Proof, 8 steps",
        "Certificate: 96 comparisons at 50 digits",
        "arXiv 2607.10848, Eq. 12",
        '<span class="mark">I</span>',
        "<strong>Not proved.</strong>",
        "<td>REFUTED</td>",
        "importance ratio",
    ):
        assert piece in page, piece
    assert page == as_page(results)
    assert "$" not in re.sub(r"<style>.*?</style>", "", page, flags=re.S)


@pytest.mark.parametrize("name", theorem.names())
def test_every_statement_can_be_set(name):
    one = theorem.get(name)
    for text in (one.title, one.statement, *one.assumptions):
        prose(text)
    for claim in one.claims:
        mathml(claim.latex)
