"""Files are whole or absent, and formats are fixed. Not covered: a crash of the machine between write and rename."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

import pytest

from eval.files import (
    InputError,
    format_cell,
    read_csv,
    read_json,
    read_jsonl,
    require_file,
    write_csv,
    write_json,
    write_jsonl,
    write_text,
)


def test_interrupted_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the rename fails, the old content stands and no temporary file is left behind."""
    path = tmp_path / "a.txt"
    write_text(path, "old")

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.txt"]


def test_whole_files_are_written_in_one_place() -> None:
    """Nothing else puts a temporary file in the place of another: all use `methods.files`. Not covered: whole folders.

    Apart are derivations, which import no other room, and a script that Snakemake copies away from the project.
    """
    apart = {"methods/files.py", "derivations/report.py", "workflows/scripts/write.py"}
    rooms = [path for room in ("methods", "eval", "workflows", "derivations") for path in Path(room).rglob("*.py")]
    found = {
        str(path)
        for path in rooms
        if re.search(r"os\.replace\(|mkstemp\(|(temporary|unfinished)\.(replace|rename)\(", path.read_text())
    }
    assert found == apart


def test_cells_have_one_spelling() -> None:
    """Nine significant digits, no negative zero, nan spelled out, None empty."""
    assert [format_cell(x) for x in (0.1 + 0.2, -0.0, math.nan, None, 3, 1e-12)] == [
        "0.3",
        "0",
        "nan",
        "",
        "3",
        "1e-12",
    ]


def test_csv_round_trip_and_strictness(tmp_path: Path) -> None:
    """Commas and quotes survive; a key that is no column is an error; a missing column is named."""
    path = tmp_path / "t.csv"
    write_csv(path, ["a", "b"], [{"a": 'x, "y"', "b": 0.5}])
    assert path.read_bytes().endswith(b"\n") and b"\r" not in path.read_bytes()
    assert read_csv(path, "table") == [{"a": 'x, "y"', "b": "0.5"}]
    with pytest.raises(ValueError, match="'c'"):
        write_csv(path, ["a"], [{"a": 1, "c": 2}])
    with pytest.raises(InputError, match=r"t\.csv lacks column\(s\) \['z'\]; it has \['a', 'b'\]"):
        read_csv(path, "table", ["a", "z"])


def test_json_refuses_nan(tmp_path: Path) -> None:
    """NaN is not JSON; nothing is written."""
    for write in (write_json, lambda path, value: write_jsonl(path, [value])):
        with pytest.raises(ValueError, match="JSON"):
            write(tmp_path / "x.json", {"a": math.nan})
    assert not list(tmp_path.iterdir())


def test_broken_files_are_named(tmp_path: Path) -> None:
    """A missing file, broken JSON and the line of broken JSONL."""
    with pytest.raises(InputError, match=r"scores: no such file: .*gone\.json"):
        require_file(tmp_path / "gone.json", "scores")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(InputError, match=r"manifest: .*bad\.json is not JSON"):
        read_json(tmp_path / "bad.json", "manifest")
    (tmp_path / "bad.jsonl").write_text('{"a": 1}\n\n{"a": \n')
    with pytest.raises(InputError, match="line 3"):
        read_jsonl(tmp_path / "bad.jsonl", "rows")


@pytest.mark.parametrize("text", [b"a,b\n1\n", b"a,b\n1,2,3\n", b"a,b\n\xff,2\n", b"a,b\n1,2\n\n3\n"])
def test_csv_cells_without_a_name_are_refused(text: bytes, tmp_path: Path) -> None:
    """Rows shorter or longer than the header, and bytes that are no text, end in an error that names the file."""
    path = tmp_path / "t.csv"
    path.write_bytes(text)
    with pytest.raises(InputError, match=r"table: .*t\.csv (line \d has not the 2 cells of line 1|is not a CSV)"):
        read_csv(path, "table")
