"""python -m methods list | show NAME | check [NAME] | pages: what methods there are, what one is, whether it keeps its
contract, and the pages of all."""

from __future__ import annotations

import argparse
import difflib
import json
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eval.method_checks.check import check, run
from eval.method_pages import page
from eval.method_pages.facts import facts
from methods import registry
from methods.config import MethodConfigError


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0; 1 where a method does not keep its contract; 2 where the call makes no sense."""
    parser = argparse.ArgumentParser(prog="python -m methods", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    listing = commands.add_parser("list", help="all methods: paper, equation, mark, needs")
    listing.add_argument("--json", action="store_true", help="the same as JSON")
    show = commands.add_parser("show", help="formula, source, options, needs and deviations of one method")
    show.add_argument("name")
    show.add_argument("--option", metavar="KEY=VALUE", action="append", default=[], help="JSON value; repeatable")
    show.add_argument("--svg", metavar="FILE", type=Path, help="write the coefficient against pi as a figure")
    checking = commands.add_parser("check", help="does a method keep its contract? a line for each thing that is wrong")
    checking.add_argument("name", nargs="?", help="default: every method")
    checking.add_argument("--option", metavar="KEY=VALUE", action="append", default=[], help="JSON value; repeatable")
    pages = commands.add_parser("pages", help="write the index of the catalogue, or a page per method")
    pages.add_argument("--output", metavar="DIR", type=Path, help="where the pages go; default: the index alone")
    args = parser.parse_args(arguments)
    try:
        registry.load_catalogue()
    except Exception as error:  # a user's file may raise anything
        at = traceback.extract_tb(error.__traceback__)[-1]
        print(f"{parser.prog}: {at.filename}:{at.lineno}: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    if args.command == "list":
        return _list(args.json)
    if args.command == "pages":
        return _pages(args.output)
    try:
        options = dict(map(_option, args.option))
        if args.command == "check":
            return _check(args.name, options)
        return _show(args.name, options, args.svg)
    except (registry.UnknownMethodError, MethodConfigError, _CallError) as error:
        print(f"{parser.prog} {args.command}: {error}", file=sys.stderr)
        return 2


def _pages(folder: Path | None) -> int:
    if folder is None:
        page.write_text(page.INDEX, page.committed_index())
        print(f"{page.INDEX}: written")
    else:
        written, gone = page.write(folder)
        print(f"{folder}: {len(written)} files written, {len(gone)} removed")
    return 0


class _CallError(ValueError):
    """The call makes no sense; the message says what is allowed."""


def _list(as_json: bool) -> int:
    header = ("name", "title", "paper", "equation", "mark", "needs")
    every = [facts(registry.get(name)) for name in registry.names()]
    rows = [(a.method.name, a.method.title, a.paper, a.equation, a.method.mark, a.needs) for a in every]
    if as_json:
        print(json.dumps([dict(zip(header, row, strict=True)) for row in rows], indent=1, ensure_ascii=False))
    else:
        print("\n".join(page.columns([header, *rows])))
    return _report_broken({a.method.name: run(a.method, a.config) for a in every})


def _report_broken(problems: dict[str, str | None]) -> int:
    """A line for each method that cannot run with what it asks for; exit status 1 where there is one."""
    broken = {name: problem for name, problem in problems.items() if problem is not None}
    for name, problem in broken.items():
        print(f"{name}: {problem}; `python -m methods check {name}` looks closer", file=sys.stderr)
    return 1 if broken else 0


def _check(name: str | None, options: dict[str, Any]) -> int:
    if name is None and options:
        raise _CallError("--option: allowed with the NAME of a method")
    wrong = 0
    for each in (name,) if name else registry.names():
        found = check(each, options)
        wrong += len(found)
        print("\n".join(f"{each}: {text}" for text in found) or f"{each}: keeps its contract")
    return 1 if wrong else 0


def _show(name: str, options: dict[str, Any], svg: Path | None) -> int:
    if name not in registry.names():
        near = difflib.get_close_matches(name, registry.names(), n=5, cutoff=0.5)
        near += [other for other in registry.names() if name.lower() in other and other not in near]
        hint = f"near: {', '.join(near)}" if near else "`python -m methods list` prints all"
        raise _CallError(f"unknown method {name!r}; {hint}")
    about = facts(registry.get(name), options)
    if svg is not None and (svg.suffix != ".svg" or not svg.absolute().parent.is_dir()):
        raise _CallError(f"--svg {svg}: allowed is a file that ends in .svg, in a folder that exists")
    print(page.text(about))
    broken = _report_broken({name: run(about.method, about.config)})
    if svg is not None and not broken:
        page.write_text(svg, page.figure(about))
        print(f"\nfigure: {svg}")
    return broken


def _option(text: str) -> tuple[str, Any]:
    """`delta=0.1`, `delta=[0.1,0.2]`, `ratio_cap=null`, `measure=tv` as (name, value)."""
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise _CallError(f"--option {text!r}: allowed is KEY=VALUE")
    for read in (json.loads, float):
        try:
            return name, read(value)
        except ValueError:
            continue
    return name, value


if __name__ == "__main__":
    sys.exit(main())
