"""The training step of a lone rank on padded columns: padded once, each mini-batch a slice that is one micro-batch.

verl carries jagged columns, which it takes apart and pads again row by row in every mini-batch; that is most of a toy
step. Where `takes_padded` says no, verl's own path runs; the updates and metrics are the same to the last bit (tests).

Shapes: N sequences of a step, B of a mini-batch, T response tokens; all padded on the right.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from tensordict import NonTensorData, TensorDict
from torch import Tensor
from verl.utils import tensordict_utils as tu

from methods.backend import replaced
from methods.backend.engine import FIRST, PADDED, CPUEngine
from methods.backend.rollout.batch import SUPPORT_IDS, SUPPORT_LOGP
from methods.backend.rollout.selection import KEPT
from methods.backend.support_loss import SUPPORT_VALID, SupportLoss, named
from methods.support import distinct

# Columns over whole sequences; all others are over responses.
SEQUENCES = ("input_ids", "position_ids")


def takes_padded(engine: CPUEngine, loss: Any, data: TensorDict, rows: int) -> bool:
    """Whether mini-batches of so many rows can come padded: a lone rank, float32, one micro-batch, a loss of ours."""
    config = engine.engine_config
    plain = not (engine.use_remove_padding or config.use_fused_kernels or engine.use_ulysses_sp)
    narrow = engine._autocast_dtype != torch.float32 or engine.scaler is not None
    asked = tu.get(data, "temperature") == 1.0 and not tu.get(data, "calculate_entropy", False)
    other = any(not _sliceable(column) for column in data.values()) or "multi_modal_inputs" in data or KEPT in data
    return (
        replaced.same_version()
        and isinstance(loss, SupportLoss)
        and torch.distributed.get_world_size() == 1
        and not config.use_dynamic_bsz
        and config.micro_batch_size_per_gpu == rows
        and plain
        and asked
        and not narrow
        and not other
    )


def _sliceable(column: Any) -> bool:
    """A jagged column [N, lengths, ...], or a value that all rows share."""
    return column.is_nested if isinstance(column, Tensor) else isinstance(column, NonTensorData)


def padded_mini_batches(data: TensorDict, size: int) -> Iterator[TensorDict]:
    """Consecutive mini-batches of `size` rows, each as wide as its longest row, as verl would pad it."""
    prompts, responses = (data[name].offsets().diff() for name in ("prompts", "responses"))
    lengths = {True: prompts + responses, False: responses}
    inside = {whole: torch.arange(int(n.max())) < n.unsqueeze(1) for whole, n in lengths.items()}
    columns: dict[str, tuple[bool, Tensor]] = {FIRST: (False, prompts - 1)}
    shared: dict[str, Any] = {}
    for name, column in data.items():
        if not isinstance(column, Tensor):
            shared[name] = NonTensorData(column.data)
        elif name != "prompts":
            whole = name in SEQUENCES
            columns[name] = whole, _pad(column.values(), inside[whole])
    columns["attention_mask"] = True, inside[True].to(torch.int32)
    if SUPPORT_IDS in columns:
        ids = named(columns[SUPPORT_IDS][1], columns[SUPPORT_LOGP][1])
        columns[SUPPORT_VALID] = False, distinct(ids) & inside[False].unsqueeze(-1)
    for start in range(0, data.shape[0], size):
        part = slice(start, start + size)
        widths = {whole: int(n[part].max()) for whole, n in lengths.items()}
        slices = {
            name: value[part] if value.dim() == 1 else value[part, : widths[whole]]
            for name, (whole, value) in columns.items()
        }
        tokens = NonTensorData(lengths[True][part].tolist())
        yield TensorDict({**slices, **shared, PADDED: tokens}, batch_size=[size])


def _pad(values: Tensor, inside: Tensor) -> Tensor:
    """Packed [n, ...] to [N, width, ...], zeros outside."""
    if len(values) == inside.numel():
        return values.view(*inside.shape, *values.shape[1:])
    out = values.new_zeros(*inside.shape, *values.shape[1:])
    out[inside] = values
    return out
