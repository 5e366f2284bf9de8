"""Reading and writing the files that the rooms exchange: atomically, in fixed formats, with clear errors."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from methods import files

# Nine significant digits: more than any score here can resolve, fewer than the last bits that platforms dispute.
FLOAT_FORMAT = ".9g"


class InputError(ValueError):
    """A file, field or argument that cannot be used; the message names it and says what is allowed."""


def require_file(path: str | os.PathLike[str], what: str) -> Path:
    """The path, or an InputError saying which `what` is missing."""
    found = Path(path)
    if not found.is_file():
        raise InputError(f"{what}: no such file: {found}")
    return found


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """As `methods.files.write_text`; makes the folder too."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    files.write_text(path, text)


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write indented JSON with sorted keys; NaN and infinities are refused (JSON has none)."""
    write_text(path, json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n")


def write_jsonl(path: str | os.PathLike[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write one compact JSON object per line, keys sorted."""
    lines = (json.dumps(row, sort_keys=True, ensure_ascii=False, allow_nan=False) for row in rows)
    write_text(path, "".join(f"{line}\n" for line in lines))


def read_json(path: str | os.PathLike[str], what: str) -> Any:
    """Parsed JSON; a missing or broken file is an InputError."""
    source = require_file(path, what)
    try:
        return json.loads(source.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{what}: {source} is not JSON: {error}") from error


def read_jsonl(path: str | os.PathLike[str], what: str) -> list[Any]:
    """One parsed value per non-empty line; the error names the line."""
    source = require_file(path, what)
    rows = []
    for number, line in enumerate(source.read_text(encoding="utf-8").splitlines(), start=1):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError as error:
                raise InputError(f"{what}: {source} line {number} is not JSON: {error}") from error
    return rows


def format_cell(value: Any) -> str:
    """One CSV cell: floats in FLOAT_FORMAT (no negative zero, `nan` spelled so), None empty, the rest as text."""
    if value is None:
        return ""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else format(value + 0.0, FLOAT_FORMAT)
    return str(value)


def write_csv(path: str | os.PathLike[str], columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a CSV with Unix line ends; a row with other keys than `columns` is an error, never dropped."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, fieldnames=list(columns), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: format_cell(value) for key, value in row.items()})
    write_text(path, buffer.getvalue())


def read_csv(path: str | os.PathLike[str], what: str, columns: Sequence[str] = ()) -> list[dict[str, str]]:
    """Rows as text; an absent column of `columns` is an InputError that lists those present.

    So is a file that is no text, and a row with more or fewer cells than the header: a cell would have no name.
    """
    source = require_file(path, what)
    try:
        with source.open(encoding="utf-8", newline="") as stream:
            reader = csv.DictReader(stream)
            present = list(reader.fieldnames or [])
            missing = [name for name in columns if name not in present]
            if missing:
                raise InputError(f"{what}: {source} lacks column(s) {missing}; it has {present}")
            rows = []
            for row in reader:
                if None in row or None in row.values():
                    raise InputError(
                        f"{what}: {source} line {reader.line_num} has not the {len(present)} cells of line 1"
                    )
                rows.append(row)
            return rows
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{what}: {source} is not a CSV: {error}") from error


def in_order(names: Iterable[str], wanted: Sequence[str] | None) -> list[str]:
    """The names as `wanted` has them, the others behind, sorted."""
    order = {name: place for place, name in enumerate(wanted or ())}
    return sorted(names, key=lambda name: (order.get(name, len(order)), name))


def sha256(path: str | os.PathLike[str]) -> str:
    """Hexadecimal SHA-256 of a file's bytes."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()
