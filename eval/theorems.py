"""The report's derivations: HTML of the file that `python -m derivations --json` writes."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from eval.files import InputError
from eval.markup import mark, table

REQUIRED = ("title", "mark", "source", "statement", "claims", "proved")


def section(content: Any, path: Path, page: str | None = None) -> str:
    """A table of all theorems, then one block each. InputError for a file of another layout.

    page: where the proofs stand, relative to the report; without it they are on the report itself.
    """
    theorems = content.get("theorems") if isinstance(content, dict) else None
    if not isinstance(theorems, list) or not theorems or not all(isinstance(item, dict) for item in theorems):
        raise InputError(f"{path}: expected an object with a list of theorems under 'theorems'")
    for number, item in enumerate(theorems):
        missing = [name for name in REQUIRED if name not in item]
        if missing:
            raise InputError(f"{path}, theorem {number}: lacks {missing}; it has {sorted(item)}")
    rows = [[item["title"], item["source"], f"[{item['mark']}]", _status(item)] for item in theorems]
    proved = sum(bool(item["proved"]) for item in theorems)
    caption = f"{proved} of {len(theorems)} formulas proved by SymPy and certified by finite differences."
    overview = table(["formula", "source", "mark", "status"], [list(map(str, row)) for row in rows], caption)
    link = _link(page)
    return "\n".join([*filter(None, [link]), overview, *(_block(item, page) for item in theorems)])


def agreement(content: Any, path: Path) -> str:
    """A table of how far the code may be from the proofs. InputError for a file of another layout."""
    bounds = content.get("agreement") if isinstance(content, dict) else None
    if not isinstance(bounds, dict) or not bounds:
        raise InputError(f"{path}: expected an object with bounds by function under 'agreement'")
    caption = f"Shipped torch functions against the proved expressions, on {content.get('policies')} random policies."
    return table(["function", "difference"], [[str(k), str(v)] for k, v in bounds.items()], caption)


def _link(page: str | None) -> str:
    if not page:
        return ""
    return f'<p>Set as mathematics, with setting, notation and proofs: <a href="{quote(page)}">one page</a>.</p>'


def _status(item: Mapping[str, Any]) -> str:
    return "proved" if item["proved"] else f"REFUTED: {item.get('error')}"


def _block(item: Mapping[str, Any], page: str | None) -> str:
    claims = "\n".join(f'<span class="formula">{escape(_claim(claim))}</span>' for claim in item["claims"])
    assumptions = "; ".join(map(str, item.get("assumptions") or []))
    parts = [
        f"<h3>{escape(str(item['title']))} {mark(str(item['mark']))}</h3>",
        f'<p class="muted">{escape(str(item["source"]))}</p>',
        f"<p>{escape(str(item['statement']))}</p>",
        claims,
        f"<p>Assumes: {escape(assumptions)}.</p>" if assumptions else "",
        "" if item["proved"] else f"<p><strong>{escape(_status(item))}</strong></p>",
        _certificate(item.get("certificate")),
        _proof(item, page),
    ]
    return "\n".join(filter(None, parts))


def _claim(claim: Any) -> str:
    return str(claim.get("text", "")) if isinstance(claim, dict) else str(claim)


def _certificate(certificate: Any) -> str:
    if not isinstance(certificate, dict):
        return ""
    pairs = "; ".join(f"{key.replace('_', ' ')} {value}" for key, value in sorted(certificate.items()))
    return f"<p>Numeric certificate: {escape(pairs)}.</p>"


def _proof(item: Mapping[str, Any], page: str | None) -> str:
    steps = item.get("steps") or []
    if page and steps:
        return f'<p><a href="{quote(page)}#{quote(str(item.get("name", "")))}">Proof, {len(steps)} steps</a></p>'
    lines = []
    for step in steps:
        formula = " ".join(str(step.get(name, "")) for name in ("left", "relation", "right"))
        lines.append(f'<li>{escape(str(step.get("reason", "")))}<span class="formula">{escape(formula)}</span></li>')
    if not lines:
        return ""
    return f"<details><summary>Proof, {len(lines)} steps</summary>\n<ol>{''.join(lines)}</ol>\n</details>"
