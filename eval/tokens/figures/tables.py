"""Rows of the token study's tables as numbers, and the command line that its figures share."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from eval.files import InputError, read_csv

Row = dict[str, str]


def rows(path: Path, columns: Sequence[str], **wanted: str) -> list[Row]:
    """Rows of a table whose columns have the wanted texts. Raises InputError where none is left."""
    found = [row for row in read_csv(path, "token table", [*columns, *wanted]) if _fits(row, wanted)]
    if not found:
        raise InputError(f"{path}: no rows with {', '.join(f'{name} = {value}' for name, value in wanted.items())}")
    return found


def number(row: Row, column: str) -> float:
    """The number in a cell; nan for an empty one. Raises InputError for another text."""
    try:
        return float(row[column]) if row[column] else math.nan
    except ValueError as error:
        raise InputError(f"token table: {column} = {row[column]!r}: allowed is a number") from error


def groups(found: Sequence[Row]) -> list[tuple[str, str, str]]:
    """(setting, update, variant) of the rows, in order, each once."""
    return list(dict.fromkeys((row["setting"], row["update"], row["variant"]) for row in found))


def name_of(group: tuple[str, str, str]) -> str:
    """How a setting is called in a figure."""
    setting, update, label = group
    step = "unmasked probe" if update == "unmasked" else f"own update of {label}"
    return f"{setting}: {step}"


def run(module: str, description: str, draw: Callable[[Path, Path], None], arguments: Sequence[str] | None) -> int:
    """Command line `--table FILE --output FILE`; 0, or 2 after one line that says what is wrong."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description.splitlines()[0])
    parser.add_argument("--table", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args(arguments)
    try:
        draw(args.table, args.output)
    except (InputError, OSError) as error:
        print(f"{module}: error: {error}", file=sys.stderr)
        return 2
    return 0


def _fits(row: Row, wanted: dict[str, str]) -> bool:
    return all(row[name] == value for name, value in wanted.items())
