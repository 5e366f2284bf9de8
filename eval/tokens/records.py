"""Reading token records: one run each, checked against the schema before any column is used."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from eval.files import InputError, require_file
from methods import token_schema

KEY = b"tether_token_record"
IDENTITY = ("panel", "label", "method", "seed", "update", "top_k", "lag", "lr", "vocab_size")


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

    def where(self, chosen: NDArray[np.bool_]) -> Record:
        """The tokens for which `chosen` is true."""
        return Record(self.path, self.identity, {name: values[chosen] for name, values in self.columns.items()})


def read(path: str | Path, columns: Iterable[str] | None = None) -> Record:
    """One record; by default all columns but the supports, which `read_whole` reads.

    Raises InputError for a file that is no record, of another version, or without a wanted column.
    """
    source = require_file(path, "token record")
    identity, schema = _opened(source)
    wanted = [name for name in schema.names if name not in token_schema.SUPPORT] if columns is None else list(columns)
    _require(source, schema, wanted)
    table = pq.read_table(source, columns=wanted)
    return Record(source, identity, {name: _numpy(table[name]) for name in wanted})


def whole_responses(path: str | Path, tokens: int) -> Iterator[Record]:
    """The responses kept whole, in their order, with their supports as [n, K + 1]; about `tokens` rows at a time.

    No response is cut. Raises InputError as `read` does, for tokens that are out of order, and where nothing was kept.
    """
    source = require_file(path, "token record")
    identity, schema = _opened(source)
    wanted = [*token_schema.IDENTITY, *token_schema.SIGNALS, *token_schema.SUPPORT]
    _require(source, schema, wanted)
    rest: dict[str, NDArray[Any]] | None = None
    for batch in pq.ParquetFile(source).iter_batches(batch_size=tokens, columns=wanted):
        kept = pa.table(batch).filter(batch["sampled_row"])
        if not kept.num_rows:
            continue
        columns = {name: _numpy(kept[name]) for name in wanted}
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
    """Positions must run from 0 to the response's end, or a reader would join what does not belong together."""
    position = record["position"].astype(np.int64)
    starts = np.flatnonzero(position == 0)
    lengths = np.diff(np.append(starts, len(position)))
    whole = len(starts) and starts[0] == 0
    if not whole or not np.array_equal(position, np.arange(len(position)) - np.repeat(starts, lengths)):
        raise InputError(f"{record.path}: the tokens of its whole responses are not in their order")
    return record


def identity(path: str | Path) -> dict[str, Any]:
    """What the run of a record was: its fields are `IDENTITY`. Raises InputError as `read` does."""
    return _opened(require_file(path, "token record"))[0]


def sweep_sizes(path: str | Path) -> list[int]:
    """The K of the sweep columns of a record."""
    names = pq.read_schema(require_file(path, "token record")).names
    return [int(name[1:].split("_")[0]) for name in names if name.startswith("k") and name.endswith("_divergence")]


def _opened(source: Path) -> tuple[dict[str, Any], pa.Schema]:
    try:
        schema = pq.read_schema(source)
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"{source}: not a Parquet file: {error}") from error
    return _identity(source, schema), schema


def _require(source: Path, schema: pa.Schema, wanted: Iterable[str]) -> None:
    missing = [name for name in wanted if name not in schema.names]
    if missing:
        raise InputError(f"{source}: lacks column(s) {missing}; it has {schema.names}")


def _identity(source: Path, schema: pa.Schema) -> dict[str, Any]:
    text = (schema.metadata or {}).get(KEY)
    if text is None:
        raise InputError(f"{source}: not a token record (no {KEY.decode()!r} in its metadata)")
    identity = json.loads(text)
    if identity.get("version") != token_schema.VERSION:
        raise InputError(
            f"{source}: token record of version {identity.get('version')!r}; this program reads {token_schema.VERSION}"
        )
    absent = [name for name in IDENTITY if name not in identity]
    if absent:
        raise InputError(f"{source}: its metadata lacks {absent}")
    return identity


def _numpy(column: pa.ChunkedArray) -> NDArray[Any]:
    """Plain columns as they are; lists, which have one length in a record, as a second axis."""
    if not pa.types.is_list(column.type):
        return column.to_numpy()
    values = column.combine_chunks()
    if values.null_count:
        raise InputError("support columns exist for responses kept whole only: use read_whole")
    return values.flatten().to_numpy(zero_copy_only=False).reshape(len(values), -1)
