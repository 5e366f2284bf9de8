"""HTML pieces of the report. Whatever comes from a file is escaped; an SVG is inlined only if it is a plain drawing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape, unescape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from eval.files import InputError, require_file

STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.55 system-ui, sans-serif; color: #1a1a1a; background: #fff; margin: 2rem auto; padding: 0 1rem;
  max-width: 80rem; }
h1 { font-size: 1.8rem; line-height: 1.2; margin-bottom: 0.2rem; }
h2 { font-size: 1.3rem; margin-top: 2.4rem; border-bottom: 1px solid #ddd; padding-bottom: 0.2rem; }
h3 { font-size: 1.05rem; margin-bottom: 0.3rem; }
p, li, dd { max-width: 46rem; }
nav a { margin-right: 1rem; }
figure { margin: 1rem 0; }
figure svg { max-width: 100%; height: auto; }
figcaption, caption { color: #444; font-size: 0.9rem; text-align: left; padding: 0.4rem 0; max-width: 60rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.3rem 0.7rem; border-bottom: 1px solid #e4e4e4; text-align: left; vertical-align: top;
  white-space: nowrap; }
thead th { border-bottom: 2px solid #888; }
thead th { white-space: pre; vertical-align: bottom; }
td.number, th.number { text-align: right; white-space: pre; }
details { margin: 1rem 0; }
summary { cursor: pointer; }
td.text { white-space: normal; min-width: 12rem; }
code, .formula { font-family: ui-monospace, monospace; font-size: .92em; }
.formula { display: block; margin: 0.25rem 0 0.25rem 1rem; white-space: pre-wrap; }
.mark { display: inline-block; min-width: 1.3em; text-align: center; border: 1px solid #888; border-radius: .25em;
  font-size: .82em; font-weight: 600; }
.muted { color: #5c5c5c; }
""".strip()

_NUMBER = re.compile(r"[-+−]?[\d.]+(e[-+]?\d+)?(\n[\[(].*[\])])?|nan|–|")
_UNSAFE = re.compile(
    r"<\s*(script|foreignObject|iframe|image)|\son\w+\s*=|javascript:|href\s*=\s*[\"'](?!#)|@import|url\((?!#)", re.I
)


class Html(str):
    """A cell of a table that is markup of ours already: not escaped."""


def mark(letter: str) -> str:
    """A provenance mark as a badge."""
    return f'<span class="mark">{escape(letter)}</span>'


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], caption: str) -> str:
    """A table of texts; columns of numbers are set right."""
    cells = [list(row) for row in rows]
    numeric = [all(_NUMBER.fullmatch(row[i]) for row in cells) for i in range(len(columns))]
    head = "".join(
        f'<th scope="col" class="number">{escape(name)}</th>' if right else f'<th scope="col">{escape(name)}</th>'
        for name, right in zip(columns, numeric, strict=True)
    )
    body = "\n".join("<tr>" + "".join(map(_cell, row, numeric)) + "</tr>" for row in cells)
    return (
        f'<div class="scroll"><table><caption>{escape(caption)}</caption>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


def _cell(text: str, numeric: bool) -> str:
    if isinstance(text, Html):
        return f"<td>{text}</td>"
    kind = "number" if numeric else "text" if len(text) > 40 else ""
    return f'<td class="{kind}">{escape(text)}</td>' if kind else f"<td>{escape(text)}</td>"


def number(text: str, signed: bool = False) -> str:
    """A cell's number with three decimals and a true minus sign; a dash for nan, another text as it is."""
    try:
        value = float(text)
    except ValueError:
        return text
    return "–" if value != value else format(value, "+.3f" if signed else ".3f").replace("-", "−")


def with_interval(row: Mapping[str, str], name: str, signed: bool = False) -> str:
    """The mean in column `name` and, on a second line, the interval in `name`_low and `name`_high.

    Of two seeds, which have no interval, the values in `name`_values stand there in round brackets.
    """
    low, high = (number(row[f"{name}_{end}"], signed) for end in ("low", "high"))
    mean = number(row[name], signed)
    values = [number(text, signed) for text in (row.get(f"{name}_values") or "").split("; ")]
    if len(values) > 1:
        return f"{mean}\n({', '.join(values)})"
    return mean if mean == "–" or low == "–" else f"{mean}\n[{low}, {high}]"


def flatten(value: Any, prefix: str = "") -> list[tuple[str, str]]:
    """[(dotted key, text)] of nested settings, keys sorted."""
    if isinstance(value, Mapping) and value:
        return [
            pair
            for key in sorted(value, key=str)
            for pair in flatten(value[key], f"{prefix}.{key}" if prefix else str(key))
        ]
    if isinstance(value, list) and any(isinstance(item, Mapping | list) for item in value):
        return [pair for number, item in enumerate(value) for pair in flatten(item, f"{prefix}[{number}]")]
    if isinstance(value, list):
        return [(prefix, ", ".join(map(str, value)))]
    return [(prefix, str(value))]


def inline_svg(path: Path, number: int) -> tuple[str, str, str]:
    """(svg element, title, description) of an SVG file, its ids made unique by `number`.

    Raises InputError for a file that is not an SVG, or one that holds scripts, event handlers or outside links.
    """
    try:
        source = require_file(path, "--figure").read_text(encoding="utf-8")
        # One element and nothing behind it, or what follows would be markup of the page.
        root = ElementTree.fromstring(source)
    except (UnicodeDecodeError, ElementTree.ParseError) as error:
        raise InputError(f"--figure: {path} is not an SVG: {error}") from error
    start = source.find("<svg")
    if start < 0 or root.tag.rpartition("}")[2] != "svg":
        raise InputError(f"--figure: {path} is not an SVG")
    texts = [_metadata(source, name) for name in ("title", "description")]
    drawing = re.sub(r"<metadata>.*?</metadata>", "", source[start:], flags=re.S).strip()
    if found := _UNSAFE.search(drawing):
        raise InputError(f"--figure: {path} holds {found.group(0).strip()!r}; only plain drawings are inlined")
    prefix = f"f{number}-"
    drawing = re.sub(r'(\sid=")', rf"\g<1>{prefix}", drawing)
    drawing = re.sub(r"(url\(#|href=\"#)", rf"\g<1>{prefix}", drawing)
    name = escape(texts[0] or path.stem)
    return drawing.replace("<svg", f'<svg role="img" aria-label="{name}"', 1), texts[0] or path.stem, texts[1]


def _metadata(source: str, name: str) -> str:
    found = re.search(rf"<dc:{name}>(.*?)</dc:{name}>", source, flags=re.S)
    return unescape(found.group(1)).strip() if found else ""


def page(title: str, sections: Sequence[tuple[str, str, str]], style: str = "") -> str:
    """A whole document from (anchor, heading, body) sections; bodies are HTML already; style: further CSS."""
    links = "".join(f'<a href="#{anchor}">{escape(heading)}</a>' for anchor, heading, _ in sections)
    bodies = "\n".join(
        f'<section id="{anchor}">\n<h2>{escape(heading)}</h2>\n{body}\n</section>' for anchor, heading, body in sections
    )
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{STYLE}{style}\n</style>\n</head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n<nav>{links}</nav>\n{bodies}\n</body>\n</html>\n"
    )
