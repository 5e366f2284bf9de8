"""verl's transfer queue inside one process: the same functions over columns that never leave memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import transfer_queue as tq
from tensordict import NonTensorData, NonTensorStack, TensorDict
from torch import Tensor
from transfer_queue import KVBatchMeta


class LocalBatchMeta(KVBatchMeta):
    """transfer_queue's metadata without its deep copies of every row's tags: these are flat."""

    tags: list[dict[str, Any]]
    extra_info: dict[str, Any] | None

    def __post_init__(self) -> None:
        if len(self.keys) != len(self.tags):
            raise ValueError(f"{len(self.keys)} keys and {len(self.tags)} tags: allowed is one tag per key")
        if len(self.keys) != len(set(self.keys)):
            raise ValueError("keys: a key stands there twice")
        self.tags = [dict(tag) for tag in self.tags]
        self.extra_info = dict(self.extra_info or {})
        object.__setattr__(self, "_size", len(self.keys))


@dataclass(eq=False)
class _Column:
    """`values` is a tensor (dense or jagged) or a non-tensor stack with one entry per row; rows only when asked for."""

    values: Any
    _rows: Sequence[Any] | None = None

    @property
    def rows(self) -> Sequence[Any]:
        if self._rows is None:
            if isinstance(self.values, Tensor):
                self._rows = self.values.unbind(0)
            elif isinstance(self.values, NonTensorData):
                self._rows = [self.values.data] * self.values.batch_size[0]
            else:
                self._rows = self.values.tolist()
        return self._rows


@dataclass(eq=False)
class _Put:
    """What was put for the same rows: `keys` in their order, or None once one of them was cleared."""

    keys: list[str] | None
    columns: dict[str, _Column]
    places: dict[str, int]

    def clear(self, gone: list[str], names: set[str]) -> None:
        if self.keys == gone:
            self.places.clear()
        for key in names & self.places.keys():
            self.keys = None
            del self.places[key]


@dataclass
class _Partition:
    tags: dict[str, dict[str, Any]] = field(default_factory=dict)
    puts: list[_Put] = field(default_factory=list)

    def holding(self, key: str) -> list[_Put]:
        """The puts of a row, latest first. Raises KeyError where there is none."""
        found = [put for put in reversed(self.puts) if key in put.places]
        if not found:
            raise KeyError(key)
        return found


class LocalQueue:
    """kv_batch_put, kv_batch_get, kv_list and kv_clear of `transfer_queue`, for a single process.

    Columns stay whole: a batch that is asked for as it was put costs nothing per row.
    """

    def __init__(self) -> None:
        self._partitions: dict[str, _Partition] = defaultdict(_Partition)

    def kv_batch_put(
        self,
        keys: list[str],
        partition_id: str,
        fields: TensorDict | None = None,
        tags: list[dict[str, Any]] | None = None,
    ) -> KVBatchMeta:
        """Add or replace fields and tags of rows."""
        partition = self._partitions[partition_id]
        for i, key in enumerate(keys):
            partition.tags.setdefault(key, {}).update(tags[i] if tags is not None else {})
        if fields is not None:
            columns = {name: _Column(values) for name, values in fields.items()}
            if partition.puts and partition.puts[-1].keys == keys:
                partition.puts[-1].columns.update(columns)
            else:
                partition.puts.append(_Put(list(keys), columns, {key: row for row, key in enumerate(keys)}))
        return LocalBatchMeta(
            keys=list(keys),
            tags=[partition.tags[key] for key in keys],
            partition_id=partition_id,
            fields=list(fields.keys()) if fields is not None else None,
        )

    def kv_batch_get(self, keys: list[str], partition_id: str, select_fields: list[str] | None = None) -> TensorDict:
        """Rows in the order of `keys`; fields that are not there are left out, as in transfer_queue."""
        partition = self._partitions[partition_id]
        there = dict.fromkeys(name for put in reversed(partition.holding(keys[0])) for name in put.columns)
        names = [name for name in (select_fields or there) if name in there]
        return TensorDict({name: _column(partition.puts, keys, name) for name in names}, batch_size=[len(keys)])

    def kv_list(self, partition_id: str | None = None) -> dict[str, dict[str, dict[str, Any]]]:
        """Copies of all tags by partition and key."""
        return {
            name: {key: dict(tag) for key, tag in partition.tags.items()}
            for name, partition in self._partitions.items()
            if partition_id in (None, name)
        }

    def kv_clear(self, keys: list[str] | str, partition_id: str) -> None:
        """Forget rows."""
        partition = self._partitions[partition_id]
        gone = [keys] if isinstance(keys, str) else list(keys)
        names = set(gone)
        for key in gone:
            partition.tags.pop(key, None)
        for put in partition.puts:
            put.clear(gone, names)
        partition.puts = [put for put in partition.puts if put.places]

    def install(self) -> None:
        """Put these in place of transfer_queue's client functions, whose servers are Ray actors."""
        for function in (self.kv_batch_put, self.kv_batch_get, self.kv_list, self.kv_clear):
            setattr(tq, function.__name__, function)


def _column(puts: list[_Put], keys: list[str], name: str) -> Any:
    """One field of these rows, each from the latest put that has it."""
    having = [put for put in reversed(puts) if name in put.columns]
    if having[0].keys == keys:
        return having[0].columns[name].values
    rows = []
    for key in keys:
        put = next((put for put in having if key in put.places), None)
        if put is None:
            raise KeyError(f"{key} has no field {name}")
        rows.append(put.columns[name].rows[put.places[key]])
    first = having[0].columns[name].values
    if not isinstance(first, Tensor):
        return NonTensorStack(*rows)
    if first.is_nested:
        return torch.nested.as_nested_tensor(rows, layout=torch.jagged)
    return torch.stack(rows)
