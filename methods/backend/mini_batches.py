"""Contiguous mini-batches of a batch of jagged columns, without a Python loop over its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any

import torch
from tensordict import NonTensorData, TensorDict
from torch import Tensor
from verl.single_controller.base.decorator import make_nd_compute_dataproto_dispatch_fn, register
from verl.utils import tensordict_utils as tu
from verl.utils.metric import Metric
from verl.utils.py_functional import append_to_dict
from verl.workers.engine_workers import TrainingWorker

from methods.backend.padded import PADDED, padded_mini_batches, takes_padded


def rows(column: Any, start: int, stop: int) -> Any:
    """Rows [start, stop) of one column: a dense or jagged tensor, or a value that all rows share."""
    if not isinstance(column, Tensor):
        return column if not getattr(column, "shape", ()) else column[start:stop]
    if not column.is_nested:
        return column[start:stop]
    offsets = column.offsets()[start : stop + 1]
    lengths = offsets.diff()
    return torch.nested.nested_tensor_from_jagged(
        column.values()[int(offsets[0]) : int(offsets[-1])],
        offsets - offsets[0],
        min_seqlen=int(lengths.min()),
        max_seqlen=int(lengths.max()),
    )


def mini_batches(data: TensorDict, size: int) -> Iterator[TensorDict]:
    """Consecutive mini-batches of `size` rows."""
    for start in range(0, data.shape[0], size):
        yield TensorDict({name: rows(column, start, start + size) for name, column in data.items()}, batch_size=[size])


def with_settings(data: TensorDict, **settings: Any) -> TensorDict:
    """The batch with verl's per-call settings (mini_batch_size, epochs, temperature, ...) attached, in place."""
    tu.assign_non_tensor(data, **settings)
    return data


class TetherTrainingWorker(TrainingWorker):
    """verl's training worker; a lone rank that does not shuffle slices its mini-batches instead of gathering rows.

    verl (utils/tensordict_utils.py:458) takes every jagged column apart row by row for each mini-batch. Where it can,
    the whole step runs on padded columns (`padded`). Updates and metrics are the same to the last bit (tests).
    """

    # Called as observe(index, count, mini-batch, take) in place of take(), which trains on it; None trains.
    observe: Callable[[int, int, TensorDict, Callable[[], TensorDict]], TensorDict] | None = None

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="train"), blocking=False)
    def train_mini_batch(self, data: TensorDict) -> TensorDict:
        """One pass of consecutive mini-batches; metrics as verl's own method returns them."""
        size, epochs = tu.get(data, "mini_batch_size"), tu.get(data, "epochs", 1)
        shuffled = tu.get(data, "dataloader_kwargs", {}).get("shuffle", False)
        alone = self.engine.get_data_parallel_size() == 1
        if not alone or shuffled or epochs != 1 or size is None or data.shape[0] % size:
            return super().train_mini_batch(data)
        offload = tu.pop(data, key="disable_auto_offload", default=False)
        for name in ("mini_batch_size", "num_mini_batch", "epochs", "seed", "dataloader_kwargs"):
            tu.pop(data, key=name, default=None)
        collected: list[dict[str, Any]] = []
        with self.engine.train_mode(disable_auto_offload=offload):
            count = data.shape[0] // size
            padded = self.observe is None and takes_padded(self.engine, self.loss_fn, data, size)
            for index, part in enumerate((padded_mini_batches if padded else mini_batches)(data, size)):
                lengths = tu.get(part, PADDED) if padded else part["input_ids"].offsets().diff().tolist()
                tu.assign_non_tensor(
                    part,
                    global_token_num=NonTensorData(lengths),
                    update_lr_scheduler=index + 1 == count,
                    disable_auto_offload=True,
                )
                take = partial(self.train_batch, part)
                output = take() if self.observe is None else self.observe(index, count, part, take)
                collected.append(tu.get(output, "metrics"))
        metrics: dict[str, Any] = {}
        for output in collected:
            append_to_dict(metrics, {name: _over_micro_batches(value) for name, value in output.items()})
        return tu.get_tensordict(tensor_dict={}, non_tensor_dict={"metrics": metrics})


def _over_micro_batches(value: Any) -> Any:
    """What engine_workers.py (train_mini_batch) makes of one mini-batch's metric."""
    if not isinstance(value, list):
        return value
    return Metric.aggregate_dp(value) if isinstance(value[0], Metric) else list(chain.from_iterable(value))
