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


@dataclass(eq=False)
class _Column:
    """One put of one field: `values` is a tensor (dense or jagged) or a non-tensor stack with one entry per row."""

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


@dataclass
class _Partition:
    tags: dict[str, dict[str, Any]] = field(default_factory=dict)
    cells: dict[str, dict[str, tuple[_Column, int]]] = field(default_factory=dict)  # key -> field -> (column, row)


class LocalQueue:
    """kv_batch_put, kv_batch_get, kv_list and kv_clear of `transfer_queue`, for a single process."""

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
            for name, values in fields.items():
                column = _Column(values)
                for row, key in enumerate(keys):
                    partition.cells.setdefault(key, {})[name] = (column, row)
        return KVBatchMeta(
            keys=list(keys),
            tags=[partition.tags[key] for key in keys],
            partition_id=partition_id,
            fields=list(fields.keys()) if fields is not None else None,
        )

    def kv_batch_get(self, keys: list[str], partition_id: str, select_fields: list[str] | None = None) -> TensorDict:
        """Rows in the order of `keys`; fields that are not there are left out, as in transfer_queue."""
        cells = [self._partitions[partition_id].cells[key] for key in keys]
        names = [name for name in (select_fields or list(cells[0])) if name in cells[0]]
        return TensorDict({name: _gather([c[name] for c in cells]) for name in names}, batch_size=[len(keys)])

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
        for key in [keys] if isinstance(keys, str) else keys:
            partition.tags.pop(key, None)
            partition.cells.pop(key, None)

    def install(self) -> None:
        """Put these in place of transfer_queue's client functions, whose servers are Ray actors."""
        for function in (self.kv_batch_put, self.kv_batch_get, self.kv_list, self.kv_clear):
            setattr(tq, function.__name__, function)


def _gather(cells: list[tuple[_Column, int]]) -> Any:
    first = cells[0][0]
    if len(first.rows) == len(cells) and all(column is first and row == i for i, (column, row) in enumerate(cells)):
        return first.values
    rows = [column.rows[row] for column, row in cells]
    if not isinstance(first.values, Tensor):
        return NonTensorStack(*rows)
    if first.values.is_nested:
        return torch.nested.as_nested_tensor(list(rows), layout=torch.jagged)
    return torch.stack(list(rows))
