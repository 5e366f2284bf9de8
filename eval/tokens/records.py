"""Token records, one run each: finding them, what each says of its run, and reading them.

Everything is checked against the schema before any column is used.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from eval.files import InputError, require_file
from methods.tokens import schema as token_schema

KEY = b"tether_token_record"
# What a record says of its run, and the kinds of values that are one (JSON's true is no number here).
IDENTITY: dict[str, tuple[type, ...]] = {
    "setting": (str,),
    "variant": (str,),
    "method": (str,),
    "seed": (int,),
    "update": (str,),
    "top_k": (int,),
    "staleness": (int,),
    "lr": (int, float),
    "vocab_size": (int,),
}
# What seeds are pooled over: runs that differ in nothing but the seed.
GROUP = ("setting", "update", "variant")
# What names a run in the study's tables.
RUN = (*GROUP, "seed")
# The rest of an identity must agree within a group.
SHARED = tuple(name for name in IDENTITY if name not in RUN)
FILE = "tokens.parquet"
# Of pyarrow for bytes that are no Parquet, be it at once or in the middle of a file.
UNREADABLE = (pa.ArrowException, OSError)


@dataclass(frozen=True)
class Record:
    """One run's tokens: `columns` by name, all of one length, and what the run was (`identity`)."""

    path: Path
    identity: dict[str, Any]
    columns: dict[str, NDArray[Any]]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self.columns:
            raise InputError(f"{self.path}: column {name!r} was not read or not recorded")
        return self.columns[name]

    @property
    def seed(self) -> int:
        return int(self.identity["seed"])

    def run(self) -> dict[str, Any]:
        """The first cells of a row about this run: `RUN` by name."""
        return {name: self.identity[name] for name in RUN}

    def where(self, chosen: NDArray[np.bool_]) -> Record:
        """The tokens for which `chosen` is true."""
        return Record(self.path, self.identity, {name: values[chosen] for name, values in self.columns.items()})


def read(path: str | Path, columns: Iterable[str] | None = None) -> Record:
    """One record; by default all columns but the supports, which `read_whole` reads.

    Raises InputError for a file that is no record, of another version, or without a wanted column, and for a value
    that is absent or NaN.
    """
    source = require_file(path, "token record")
    identity, schema = _open(source)
    wanted = [name for name in schema.names if name not in token_schema.SUPPORT] if columns is None else list(columns)
    _require(source, schema, wanted)
    try:
        table = pq.read_table(source, columns=wanted)
    except UNREADABLE as error:
        raise _unreadable(source, error) from error
    return Record(source, identity, {name: _numpy(source, name, table[name]) for name in wanted})


def whole_responses(path: str | Path, tokens: int) -> Iterator[Record]:
    """The responses kept whole, in their order, with their supports as [n, K + 1]; about `tokens` rows at a time.

    No response is cut. Raises InputError as `read` does, for tokens that are out of order or missing, and where
    nothing was kept.
    """
    source = require_file(path, "token record")
    identity, schema = _open(source)
    wanted = [*token_schema.POSITION, *token_schema.SIGNALS, *token_schema.SUPPORT]
    _require(source, schema, wanted)
    rest: dict[str, NDArray[Any]] | None = None
    for batch in _batches(source, tokens, wanted):
        kept = pa.table(batch).filter(batch["sampled_row"])
        if not kept.num_rows:
            continue
        columns = {name: _numpy(source, name, kept[name]) for name in wanted}
        if rest is not None:
            columns = {name: np.concatenate([rest[name], values]) for name, values in columns.items()}
        # The last response may go on in the next batch.
        cut = int(np.flatnonzero(columns["position"] == 0)[-1]) if (columns["position"] == 0).any() else 0
        if cut:
            yield _in_order(Record(source, identity, {name: values[:cut] for name, values in columns.items()}))
        rest = {name: values[cut:] for name, values in columns.items()}
    if rest is None:
        raise InputError(f"{source}: no response was kept whole (tokens.share was 0, or too small for this run)")
    yield _in_order(Record(source, identity, rest))


def read_whole(path: str | Path) -> Record:
    """All of `whole_responses` in memory: about 300 bytes a token with K = 20."""
    parts = list(whole_responses(path, 1 << 16))
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0].columns}
    return Record(parts[0].path, parts[0].identity, columns)


def _in_order(record: Record) -> Record:
    """Positions must run from 0 to the response's length, or a reader would join what does not belong together."""
    position = record["position"].astype(np.int64)
    starts = np.flatnonzero(position == 0)
    lengths = np.diff(np.append(starts, len(position)))
    whole = len(starts) and starts[0] == 0
    if not whole or not np.array_equal(position, np.arange(len(position)) - np.repeat(starts, lengths)):
        raise InputError(f"{record.path}: the tokens of its whole responses are not in their order")
    # A method that looks at whole responses would take the rest of one for all of it.
    for place in np.flatnonzero(record["length"][starts] != lengths)[:1]:
        first = starts[place]
        named = ", ".join(f"{name} {record[name][first]}" for name in ("step", "mini_batch", "response"))
        raise InputError(f"{record.path}: {named} has {lengths[place]} of its {record['length'][first]} tokens")
    return record


def identity(path: str | Path) -> dict[str, Any]:
    """What the run of a record was: its fields are `IDENTITY`. Raises InputError as `read` does."""
    return _open(require_file(path, "token record"))[0]


def find_records(paths: Sequence[Path]) -> list[Path]:
    """The given records, and all in or below given folders. Raises InputError where a folder has none."""
    found: list[Path] = []
    for path in paths:
        below = sorted(path.rglob(FILE)) if path.is_dir() else [path]
        if not below:
            raise InputError(f"{path}: no {FILE} in this folder")
        found += below
    return list(dict.fromkeys(found))


def one_study(paths: Sequence[Path]) -> dict[Path, dict[str, Any]]:
    """What the run of each record was, sorted by setting and seed: no table depends on how files are named.

    Raises InputError for two records of one run, and for runs of one setting that differ in more than the seed: a mean
    over them would be one of nothing.
    """
    identities = {path: identity(path) for path in paths}
    order = sorted(identities, key=lambda path: (*(identities[path][name] for name in RUN), str(path)))
    first: dict[tuple[Any, ...], Path] = {}
    for path in order:
        group = tuple(identities[path][name] for name in GROUP)
        run = (*group, identities[path]["seed"])
        named = ", ".join(f"{name} {value!r}" for name, value in zip(RUN, run, strict=True))
        if run in first:
            raise InputError(f"{path} and {first[run]}: two records of one run ({named}); allowed is one")
        like = first.setdefault(group, path)
        for name in SHARED:
            if identities[path][name] != identities[like][name]:
                raise InputError(
                    f"{path}: {name} = {identities[path][name]!r}, but {identities[like][name]!r} in {like}, "
                    f"which is of the same setting ({named.rsplit(',', 1)[0]}); only the seed may differ"
                )
        first[run] = path
    return {path: identities[path] for path in order}


def sweep_sizes(path: str | Path) -> list[int]:
    """The K of the sweep columns of a record."""
    names = pq.read_schema(require_file(path, "token record")).names
    return [int(name[1:].split("_")[0]) for name in names if name.startswith("k") and name.endswith("_divergence")]


def _batches(source: Path, tokens: int, wanted: list[str]) -> Iterator[pa.RecordBatch]:
    try:
        yield from pq.ParquetFile(source).iter_batches(batch_size=tokens, columns=wanted)
    except UNREADABLE as error:
        raise _unreadable(source, error) from error


def _open(source: Path) -> tuple[dict[str, Any], pa.Schema]:
    try:
        schema = pq.read_schema(source)
    except UNREADABLE as error:
        raise InputError(f"{source}: not a Parquet file: {error}") from error
    return _identity(source, schema), schema


def _unreadable(source: Path, error: Exception) -> InputError:
    return InputError(f"{source}: a Parquet file with broken pages: {' '.join(str(error).split())}")


def _require(source: Path, schema: pa.Schema, wanted: Iterable[str]) -> None:
    missing = [name for name in wanted if name not in schema.names]
    if missing:
        raise InputError(f"{source}: lacks column(s) {missing}; it has {schema.names}")


def _identity(source: Path, schema: pa.Schema) -> dict[str, Any]:
    text = (schema.metadata or {}).get(KEY)
    if text is None:
        raise InputError(f"{source}: not a token record (no {KEY.decode()!r} in its metadata)")
    try:
        identity = json.loads(text)
    except ValueError as error:
        raise InputError(f"{source}: its metadata is not JSON: {error}") from error
    if not isinstance(identity, dict):
        raise InputError(f"{source}: its metadata is {identity!r}; allowed is an object with {list(IDENTITY)}")
    if type(identity.get("version")) is not int or identity["version"] != token_schema.VERSION:
        raise InputError(
            f"{source}: token record of version {identity.get('version')!r}; this program reads {token_schema.VERSION}"
        )
    absent = [name for name in IDENTITY if name not in identity]
    if absent:
        raise InputError(f"{source}: its metadata lacks {absent}")
    for name, kinds in IDENTITY.items():
        value = identity[name]
        if type(value) not in kinds or (value < 0 if str not in kinds else not value):
            allowed = "a text" if str in kinds else "a whole number from 0" if float not in kinds else "a number from 0"
            raise InputError(f"{source}: {name} = {value!r} in its metadata; allowed is {allowed}")
    return identity


def _numpy(source: Path, name: str, column: pa.ChunkedArray) -> NDArray[Any]:
    """Plain columns as they are; lists, which have one length in a record, as a second axis. Refuses what is absent."""
    if column.null_count:
        where = "responses kept whole" if name in token_schema.SUPPORT else "all tokens"
        raise InputError(f"{source}: column {name!r} lacks {column.null_count} value(s); it must have {where}")
    if pa.types.is_list(column.type):
        lists = column.combine_chunks()
        lengths = sorted(set(lists.value_lengths().to_pylist()))
        if len(lengths) > 1:
            raise InputError(f"{source}: lists of {lengths[0]} to {lengths[-1]} values in {name!r}; one length allowed")
        values = lists.flatten().to_numpy(zero_copy_only=False).reshape(len(lists), lengths[0] if lengths else 0)
    else:
        values = column.to_numpy()
    if values.dtype.kind not in "biuf":
        raise InputError(f"{source}: column {name!r} is of type {column.type}; numbers or flags allowed")
    if values.dtype.kind == "f" and np.isnan(values).any():
        row = int(np.flatnonzero(np.isnan(values).reshape(len(values), -1).any(axis=1))[0])
        raise InputError(f"{source}: column {name!r} is NaN at token {row} of those read; allowed is a number")
    return values
