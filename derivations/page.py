"""All theorems as one HTML page for a reader who knows calculus, but neither this code nor the papers.

Self-contained: mathematics is MathML, there is no script and nothing is fetched. Same results, same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from mpmath import nstr

from derivations.mathml import mathml, prose
from derivations.render import latex, plain
from derivations.theorem import MARKS

if TYPE_CHECKING:
    from derivations.report import Result

_STYLE = """
body { font: 17px/1.6 Georgia, 'Times New Roman', serif; color: #1a1a1a; background: #fff; margin: 2rem auto;
  padding: 0 1.2rem; max-width: 52rem; }
h1 { font-size: 1.9rem; line-height: 1.2; }
h2 { font-size: 1.35rem; margin-top: 3rem; border-bottom: 1px solid #ddd; padding-bottom: 0.2rem; }
h3 { font-size: 1.05rem; margin: 1.4rem 0 0.3rem; }
.source, .certificate, figcaption { color: #555; font-size: 0.92rem; }
.mark { display: inline-block; min-width: 1.3em; text-align: center; border: 1px solid #888; border-radius: .25em;
  font: 600 0.8rem system-ui, sans-serif; }
.display { overflow-x: auto; overflow-y: hidden; padding: 0.2rem 0; }
math { font-size: 1.06em; }
table { border-collapse: collapse; font-size: 0.92rem; }
th, td { text-align: left; vertical-align: top; padding: 0.25rem 0.8rem 0.25rem 0; border-bottom: 1px solid #e4e4e4; }
details { margin: 0.8rem 0; }
summary { cursor: pointer; }
details ol { padding-left: 1.6rem; }
.refuted { border-left: 4px solid #b00020; padding-left: 0.8rem; }
""".strip()

_THEOREM = re.compile(r"\btheorem ([a-z_0-9]+)\b")


_SETTING = (
    r"A language model, at some state of a response, chooses the next of $n$ tokens. Text is sampled from a **rollout "
    r"policy** $\mu$: $\mu_i$ is its probability of token $i$. Meanwhile training has moved the weights, so that the "
    r"**current policy** $\pi$ differs. It is a softmax of logits $z$: $\pi_i = e^{z_i} / \sum_j e^{z_j}$.",
    r"The token that was sampled is called $k$. It carries an **advantage** $A$, how much better than average its "
    r"response was, and an **importance ratio** $r = \pi_k / \mu_k$. One gradient step on that token moves the logits "
    r"by $c (e_k - \pi)$, where $e_k$ is 1 at $k$ and 0 elsewhere, and $c = \eta A r$ with a learning rate $\eta > 0$ "
    r"(theorem softmax_step). Every statement below is about the limit of small $c$, unless it says otherwise.",
    r"A **trust region** keeps $\pi$ near $\mu$: a token's gradient is dropped if a divergence $D(\mu, \pi)$ exceeds a "
    r"radius $\delta$ and the step would raise it further. Whether it would, is the **direction** question: what is "
    r"the sign of $dD/dc$? PPO and its relatives read it off $r - 1$, the sampled token alone. The theorems say what "
    r"$dD/dc$ is, and when that reading is right.",
)
_NOTATION = (
    (r"$\mu_i, \pi_i$", r"probabilities of token $i$; $\mu$ is constant"),
    (r"$k, r, A, c$", r"sampled token, its ratio $\pi_k / \mu_k$, its advantage, the step size"),
    (r"$\sum_i$", r"sum over all $n$ tokens, numbered from 0"),
    (r"$S, T, m$", r"retained support (the $m$ most likely tokens under $\mu$, with $k$) and the tail: all others"),
    (r"$\mu_T, \pi_T$", r"total mass of the tail under each policy"),
    (r"$c_2$", r"collision mass of the tail, the sum of $\pi_j^2$ over it"),
    (r"$\mathbf{1}[i=k]$", r"1 if $i$ is $k$, else 0"),
    (r"$\tilde{D}$", r"the divergence on $m + 1$ classes: the retained tokens, and the tail as one"),
)
_METHOD = (
    r"Each formula is proved by differentiating the divergence (or objective) itself, with SymPy, for a symbolic "
    r"number of tokens $n$: nothing is checked for $n = 3$ only. Sums over $n$ tokens are handled by five rules. A sum "
    r"of terms is split and factors without the index leave it; a constant term is multiplied by the number of terms; "
    r"$\mathbf{1}[i=k]$ picks one term; stated facts such as $\sum_i \mu_i = 1$ may be used; and the "
    r"logarithm of a product of positive factors is the sum of their logarithms. Two sides are equal "
    r"if their difference then vanishes. Every line of a proof was checked when this page was written. The line "
    r"named certificate compares the stated formula with finite differences of the divergence at 50 digits, on random "
    r"policies from flat to nearly certain, by code that shares nothing with the proof.",
)


def as_page(results: Sequence[Result]) -> str:
    """The whole document. Raises MathError for a formula that cannot be shown."""
    proved = sum(result.ok for result in results)
    names = {result.theorem.name for result in results}
    body = [
        "<h1>Which way does a policy-gradient step move a divergence?</h1>",
        f"<p>{len(results)} theorems behind the losses of this project, {proved} of them proved and certified.</p>",
        _contents(results),
        '<h2 id="setting">Setting</h2>',
        *(f"<p>{_strong(prose(text))}</p>" for text in _SETTING),
        "<h3>Notation</h3>",
        "<table><tbody>",
        *(f"<tr><td>{prose(left)}</td><td>{prose(right)}</td></tr>" for left, right in _NOTATION),
        "</tbody></table>",
        '<h2 id="method">How to read a proof</h2>',
        *(f"<p>{prose(text)}</p>" for text in _METHOD),
        "<p>A letter says where a formula comes from:</p>",
        "<ul>" + "".join(f"<li>{_mark(letter)} {text}</li>" for letter, text in MARKS.items()) + "</ul>",
        *(_theorem(number, result) for number, result in enumerate(results, 1)),
    ]
    head = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8"/>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>\n'
        f"<title>Derivations</title>\n<style>\n{_STYLE}\n</style>\n</head>\n<body>\n"
    )
    linked = _THEOREM.sub(
        lambda found: f'theorem <a href="#{found[1]}">{found[1]}</a>' if found[1] in names else found[0],
        "\n".join(body),
    )
    return f"{head}{linked}\n</body>\n</html>\n"


def _contents(results: Sequence[Result]) -> str:
    rows = [
        f'<tr><td>{number}</td><td><a href="#{result.theorem.name}">{escape(plain(result.theorem.title))}</a></td>'
        f"<td>{escape(result.theorem.source)}</td><td>{_mark(result.theorem.mark)}</td>"
        f"<td>{'proved' if result.ok else 'REFUTED'}</td></tr>"
        for number, result in enumerate(results, 1)
    ]
    head = "<tr><th></th><th>theorem</th><th>source</th><th></th><th></th></tr>"
    return f"<table><thead>{head}</thead><tbody>\n" + "\n".join(rows) + "\n</tbody></table>"


def _theorem(number: int, result: Result) -> str:
    theorem = result.theorem
    parts = [
        f'<section id="{theorem.name}">',
        f"<h2>{number}. {prose(theorem.title)}</h2>",
        f'<p class="source">{escape(theorem.source)} {_mark(theorem.mark)} <code>{theorem.name}</code></p>',
        f"<p>{prose(theorem.statement)}</p>",
        *(_display(claim.latex) for claim in theorem.claims),
        "<h3>Assumptions</h3>",
        "<ul>" + "".join(f"<li>{prose(text)}</li>" for text in theorem.assumptions) + "</ul>",
    ]
    if result.error is not None:
        parts.append(f'<p class="refuted"><strong>Not proved.</strong> <code>{escape(result.error)}</code></p>')
    if result.steps:
        parts.append(f"<details><summary>Proof, {len(result.steps)} steps</summary>\n<ol>")
        for step in result.steps:
            line = f"{latex(step.left)} {_RELATION.get(step.relation, step.relation)} {latex(step.right)}"
            parts.append(f"<li>{prose(step.reason)}{_display(line)}</li>")
        parts.append("</ol>\n</details>")
    if result.certificate is not None:
        certificate = result.certificate
        parts.append(
            f'<p class="certificate">Certificate: {certificate.cases} comparisons at {certificate.digits} digits, '
            f"largest relative error {nstr(certificate.worst, 2)}, allowed {nstr(certificate.tolerance, 2)}.</p>"
        )
    return "\n".join([*parts, "</section>"])


_RELATION = {">=": r"\ge", "<=": r"\le", "!=": r"\neq"}


def _display(source: str) -> str:
    return f'<div class="display">{mathml(source, display=True)}</div>'


def _mark(letter: str) -> str:
    return f'<span class="mark">{escape(letter)}</span>'


def _strong(html: str) -> str:
    """**word** as strong text."""
    parts = html.split("**")
    return "".join(f"<strong>{part}</strong>" if place % 2 else part for place, part in enumerate(parts))
