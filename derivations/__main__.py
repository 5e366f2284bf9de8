"""Prove and certify the formulas that `methods/` computes: `python -m derivations`.

Exit status: 0 if every theorem holds, 1 if one does not, 2 if the call makes no sense.
"""

from __future__ import annotations

import argparse
import keyword
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import derivations.theorems  # noqa: F401  (registers them)
from derivations import new, report, theorem
from derivations.page import as_page

LEAST_DIGITS = 25  # with fewer, the finite differences of near-certain policies are all rounding


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m derivations", description="State, prove and certify the formulas.")
    parser.add_argument("--theorem", metavar="NAME", action="append", help="only this one, with its steps (repeatable)")
    parser.add_argument(
        "--new",
        metavar="DIVERGENCE",
        help='derive your own, as "sum(mu*log(mu/pi))": see derivations/new; one that begins with a minus sign, as '
        '"-log(sum(sqrt(mu*pi)))", is written --new="-log(...)", with the equals sign',
    )
    parser.add_argument(
        "--write", metavar="FILE", type=Path, help="with --new: write its torch code to this new file of Python"
    )
    parser.add_argument("--name", help="with --write: name of the measure (default: the file's)")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the results as JSON")
    parser.add_argument("--text", metavar="FILE", type=Path, help="write table and steps as text")
    parser.add_argument(
        "--tex", metavar="FILE", type=Path, help="write statements and steps as LaTeX, and beside it as HTML"
    )
    parser.add_argument("--dps", metavar="N", type=int, default=50, help="decimal digits of the certificates (50)")
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="seed of their random policies (0)")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.dps < LEAST_DIGITS:
        parser.error(f"--dps is {arguments.dps}, allowed are {LEAST_DIGITS} and above")
    if arguments.new is not None:
        return _derive_new(parser, arguments)
    if arguments.write is not None or arguments.name is not None:
        parser.error("--write and --name are of --new")
    try:
        chosen = [theorem.get(name) for name in arguments.theorem or theorem.names()]
    except theorem.UnknownTheoremError as error:
        parser.error(f"--theorem: {error}")
    writers: tuple[tuple[Path | None, Callable[[Sequence[report.Result]], str]], ...] = (
        (arguments.json, report.as_json),
        (arguments.text, report.as_text),
        (arguments.tex, report.as_tex),
        (arguments.tex and arguments.tex.with_suffix(".html"), as_page),
    )
    if arguments.tex is not None and arguments.tex.suffix == ".html":
        parser.error(f"--tex: {arguments.tex} is the name of the page that is written beside the LaTeX")
    for path, _ in writers:
        if path is not None and not path.parent.is_dir():
            parser.error(f"{path}: the folder {path.parent} does not exist")

    results = [report.run(one, arguments.dps, arguments.seed) for one in chosen]
    if arguments.theorem:
        print("\n\n".join(report.steps_text(result) for result in results), end="\n\n")
    print(report.table(results))
    for path, writer in writers:
        if path is not None:
            report.write_atomically(path, writer(results))
    failed = [result for result in results if not result.ok]
    for result in failed:
        print(result.error, file=sys.stderr)
    print(f"{len(results) - len(failed)} of {len(results)} theorems proved and certified")
    return 1 if failed else 0


def _derive_new(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> int:
    if arguments.name is not None and arguments.write is None:
        parser.error("--name is of --write")
    name = "my_measure" if arguments.write is None else arguments.name or arguments.write.stem
    if arguments.write is not None:
        _check_new_file(parser, arguments.write, name)
    try:
        text, ok = new.derive(arguments.new, arguments.dps, arguments.seed, name)
    except ValueError as error:
        parser.exit(2, f"{parser.prog}: error: --new: {error}\n")
    print(text)
    if arguments.write is None:
        return 0 if ok else 1
    if not ok:
        parser.exit(1, f"{parser.prog}: error: {arguments.write} is not written: a check failed, see above\n")
    try:
        report.write_new(arguments.write, new.code_in(text))
    except FileExistsError:
        parser.exit(2, f"{parser.prog}: error: --write {arguments.write}: it exists; allowed is a new file\n")
    print(f"\nwritten: {arguments.write}, with the measure {name.upper()}")
    return 0


def _check_new_file(parser: argparse.ArgumentParser, path: Path, name: str) -> None:
    """What can be wrong with --write and --name, before the minutes of algebra."""
    if not new.NAME.fullmatch(name) or keyword.iskeyword(name):
        parser.error(f"--name {name}: allowed are lower-case letters, digits and underscores, a letter first")
    if path.suffix != ".py":
        parser.error(f"--write {path}: allowed is a file that ends in .py")
    if path.exists():
        parser.error(f"--write {path}: it exists; allowed is a new file")
    if not path.parent.is_dir():
        parser.error(f"--write {path}: the folder {path.parent} does not exist")


if __name__ == "__main__":
    sys.exit(main())
