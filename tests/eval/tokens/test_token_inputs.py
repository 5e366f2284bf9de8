"""Property tests of what `python -m eval.tokens` does with records that it cannot use: one line that names the file and
the field, exit code 2, and no table; definition of which records are one study, and that names of files do not matter.

Does not cover wrong numbers that look right: a record is believed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from eval.files import InputError, read_csv
from eval.tokens import records, run_tables
from eval.tokens.__main__ import main
from workflows.tools.bench.replay import write_record

KEY = "tether_token_record"
Change = Callable[[pa.Table], pa.Table]


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A synthetic record of about 200 tokens, none of them outside the region."""
    path = tmp_path_factory.mktemp("inputs") / "tokens.parquet"
    write_record(path, 200)
    return path


def described(table: pa.Table, **fields: Any) -> pa.Table:
    """The table with other fields in its identity."""
    identity = json.loads(table.schema.metadata[KEY.encode()]) | fields
    return table.replace_schema_metadata({KEY: json.dumps(identity)})


def holding(name: str, place: int, value: Any) -> Change:
    """A change of one value of a column."""

    def changed(table: pa.Table) -> pa.Table:
        values, field = table[name].to_pylist(), table.schema.field(name)
        values[place] = value
        return table.set_column(table.column_names.index(name), field, pa.array(values, field.type))

    return changed


def texts(table: pa.Table) -> pa.Table:
    return table.set_column(table.column_names.index("logp_pi"), "logp_pi", pa.array(["a"] * len(table)))


def study(folder: Path, *paths: Path) -> int:
    """Run the study with its tables in `folder`/tables."""
    given = [*map(str, paths), "--tables", str(folder / "tables"), "--verdicts", str(folder / "verdicts.csv")]
    return main(["study", *given])


def line(capsys: pytest.CaptureFixture[str]) -> str:
    """What was said on standard error, progress left out: one line."""
    said = [text for text in capsys.readouterr().err.splitlines() if not text.startswith("[tokens ")]
    assert len(said) == 1, said
    return said[0]


@pytest.mark.parametrize("command", ["study", "replay"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: described(table, version=1), "version 1; this program reads 2"),
        (lambda table: described(table, version=True), "version True; this program reads 2"),
        (lambda table: described(table, seed="ten"), "seed = 'ten' in its metadata; allowed is a whole number from 0"),
        (lambda table: described(table, seed=-1), "seed = -1 in its metadata"),
        (lambda table: described(table, seed=1.5), "seed = 1.5 in its metadata"),
        (lambda table: described(table, setting=""), "setting = '' in its metadata; allowed is a text"),
        (lambda table: described(table, lr="high"), "lr = 'high' in its metadata; allowed is a number from 0"),
        (lambda table: table.replace_schema_metadata({KEY: "{no"}), "its metadata is not JSON"),
        (lambda table: table.replace_schema_metadata({KEY: "[1]"}), "its metadata is [1]; allowed is an object"),
        (lambda table: table.drop_columns(["logp_mu"]), "lacks column(s) ['logp_mu']"),
        (holding("logp_pi", 7, float("nan")), "column 'logp_pi' is NaN at token 7"),
        (holding("advantage", 7, float("nan")), "column 'advantage' is NaN at token 7"),
        (holding("logp_mu", 7, None), "column 'logp_mu' lacks 1 value(s)"),
        (texts, "column 'logp_pi' is of type string"),
    ],
)
def test_bad_records_end_in_one_line(
    command: str, change: Change, message: str, record: Path, tmp_path: Path, capsys: Any
) -> None:
    bad = tmp_path / "tokens.parquet"
    pq.write_table(change(pq.read_table(record)), bad)
    code = study(tmp_path, bad) if command == "study" else main(["replay", str(bad), "--methods", "pg_is"])
    said = line(capsys)
    assert code == 2 and str(bad) in said and message in said
    assert not (tmp_path / "tables").exists()


@pytest.mark.parametrize("command", ["study", "replay"])
@pytest.mark.parametrize("part", ["end", "middle", "all"])
def test_broken_files_end_in_one_line(command: str, part: str, record: Path, tmp_path: Path, capsys: Any) -> None:
    """A file cut short, one whose footer is whole and whose pages are not, and one of no bytes."""
    whole = record.read_bytes()
    pages = bytes(byte ^ 0x5A for byte in whole[4 : len(whole) // 2])
    broken = {"end": whole[: len(whole) // 2], "middle": whole[:4] + pages + whole[len(whole) // 2 :], "all": b""}
    bad = tmp_path / "tokens.parquet"
    bad.write_bytes(broken[part])
    code = study(tmp_path, bad) if command == "study" else main(["replay", str(bad), "--methods", "pg_is"])
    said = line(capsys)
    assert code == 2 and f"{bad}: {'a Parquet file with broken pages' if part == 'middle' else 'not a Parquet'}" in said


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (holding("support_ids", 3, [1, 2]), "lists of 2 to 21 values in 'support_ids'"),
        (holding("support_ids", 3, None), "column 'support_ids' lacks 1 value(s)"),
        (holding("logp_pi", 3, 1.0), "logp_pi"),
    ],
)
def test_bad_supports_and_signals_end_a_replay(
    change: Change, message: str, record: Path, tmp_path: Path, capsys: Any
) -> None:
    """The last is a log-prob above 0, which the methods refuse."""
    bad = tmp_path / "tokens.parquet"
    pq.write_table(change(pq.read_table(record)), bad)
    assert main(["replay", str(bad)]) == 2
    said = line(capsys)
    assert str(bad) in said and message in said


def test_methods_of_a_replay(record: Path, capsys: Any) -> None:
    """One that cannot run is no table; one named twice is one."""
    assert main(["replay", str(record), "--methods", "sat"]) == 2
    assert "no method to replay: sat ranks over whole mini-batches" in line(capsys)
    printed = []
    for names in (["pg_is", "grpo", "pg_is"], ["pg_is", "grpo"]):
        assert main(["replay", str(record), "--methods", *names]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]


def placed(record: Path, folder: Path, **fields: Any) -> Path:
    """A copy of the record in a folder, of another run."""
    folder.mkdir(parents=True)
    path = folder / records.FILE
    pq.write_table(described(pq.read_table(record), **fields), path)
    return path


def test_records_of_one_run_or_of_mixed_groups_are_refused(record: Path, tmp_path: Path, capsys: Any) -> None:
    """Twice the same run would count its seed twice; a setting of two kinds of runs has no mean."""
    one = placed(record, tmp_path / "one")
    again = placed(record, tmp_path / "again")
    assert study(tmp_path, one, again) == 2
    assert "two records of one run (setting 'synthetic', update 'unmasked', variant 'synthetic', seed 0)" in line(
        capsys
    )
    for name, value in {"top_k": 10, "staleness": 2, "lr": 1e-3, "vocab_size": 7, "method": "grpo"}.items():
        other = placed(record, tmp_path / name, seed=1, **{name: value})
        assert study(tmp_path, one, other) == 2
        said = line(capsys)
        assert f"{other}: {name} = {value!r}, but" in said and str(one) in said
    assert not (tmp_path / "tables").exists()
    # The same file named twice is one record; other settings and updates are other settings.
    others = [
        placed(record, tmp_path / "p", setting="p", staleness=2),
        placed(record, tmp_path / "u", update="own", staleness=2),
    ]
    assert set(records.one_study([one, *others])) == {one, *others}
    assert records.find_records([one, one, tmp_path / "one"]) == [one]


def test_folders(record: Path, tmp_path: Path) -> None:
    """A record lies in the folder itself or below it; a folder without one is an error."""
    one = placed(record, tmp_path / "a")
    assert records.find_records([tmp_path / "a"]) == records.find_records([tmp_path]) == [one]
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match=r"none: no tokens\.parquet"):
        records.find_records([tmp_path / "none"])


def test_the_names_of_files_change_nothing(record: Path, tmp_path: Path) -> None:
    """Seeds 0, 2, 10 in folders whose order is another one, twice: the same bytes."""
    for name, folders in (("one", "abc"), ("two", "cab")):
        for folder, seed in zip(folders, (0, 2, 10), strict=True):
            random = np.random.default_rng(seed)
            table = described(pq.read_table(record), seed=seed)
            for column in (name for name in table.column_names if name.startswith(("full_", "reduced_", "direction_"))):
                values = pa.array(random.normal(scale=0.4, size=len(table)).astype("f4"))
                table = table.set_column(table.column_names.index(column), column, values)
            path = tmp_path / name / folder / records.FILE
            path.parent.mkdir(parents=True)
            pq.write_table(table, path)
        assert study(tmp_path / f"{name}_out", tmp_path / name) == 0
    one, two = (
        {path.name: path.read_bytes() for path in (tmp_path / f"{name}_out").rglob("*.csv")} for name in ("one", "two")
    )
    assert len(one) == 7 and one == two


@pytest.mark.parametrize("kind", ["empty", "still", "inside"])
def test_runs_without_tokens_or_without_disagreement_have_tables(kind: str, record: Path, tmp_path: Path) -> None:
    """No token, none of nonzero advantage, none outside: the tables have their columns, the verdicts say nothing."""
    table = pq.read_table(record)
    still = table.set_column(table.column_names.index("advantage"), "advantage", pa.array(np.zeros(len(table), "f4")))
    pq.write_table({"empty": table.slice(0, 0), "still": still, "inside": table}[kind], tmp_path / records.FILE)
    assert study(tmp_path, tmp_path / records.FILE) == 0
    assert read_csv(tmp_path / "tables/tokens_changes.csv", "changes", run_tables.CHANGE_COLUMNS) == []
    rows = read_csv(tmp_path / "verdicts.csv", "verdicts")
    assert rows and {row["verdict"] for row in rows} == {"not testable"}
