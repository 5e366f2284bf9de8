"""The trainer's side of `selection`: what it reads from and writes to the transfer queue for one training step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transfer_queue as tq
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.utils.config import omega_conf_to_dataclass

from methods.backend.rollout.base import special_ids
from methods.backend.rollout.selection import KEPT, ROLLOUTS, flat, kept_in_mini_batch, truncated, write_rollouts


def leave_out(config: Any, batch: KVBatchMeta, mini_batch: int) -> dict[str, float]:
    """Mark the responses that `rollout.custom` leaves out of the loss, for the worker to mask; returns a metric.

    batch: in the order of submission. Raises ValueError where it is no multiple of `mini_batch` responses.
    """
    custom = _custom(config)
    if not (custom.get("mask_truncated") or custom.get("skip_flat_groups")):
        return {}
    if len(batch.keys) % mini_batch:
        raise ValueError(
            f"rollout.custom.mask_truncated, skip_flat_groups: {len(batch.keys)} responses: allowed is a multiple of "
            f"the mini-batch of {mini_batch}"
        )
    data = tq.kv_batch_get(batch.keys, batch.partition_id, ["responses", "rm_scores"])
    left_out = torch.zeros(len(batch.keys), dtype=torch.bool)
    if custom.get("mask_truncated"):
        left_out |= truncated(data["responses"].unbind(), _ends(config))
    if custom.get("skip_flat_groups"):
        scores = torch.stack([row.sum() for row in data["rm_scores"].unbind()])
        left_out |= flat(scores, [_place(key)[0] for key in batch.keys])
    offsets = data["responses"].offsets()
    kept = kept_in_mini_batch(left_out, mini_batch).repeat_interleave(offsets.diff())
    column = torch.nested.nested_tensor_from_jagged(kept, offsets)
    fields = TensorDict({KEPT: column}, batch_size=[len(batch.keys)])
    tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=fields)
    return {"tokens/responses_left_out": float(left_out.sum())}


def keep_rollouts(config: Any, tokenizer: Any, partition: str, keys: list[str], folder: Path, step: int) -> None:
    """With `rollout.custom.rollouts`, the step's responses as one file; keys: in the order of submission."""
    if not _custom(config).get("rollouts"):
        return
    names = ["prompts", "responses", "rm_scores"]
    data = tq.kv_batch_get(keys, partition, [*names, "data_source", "reward_model"])
    columns = [data[name].unbind() for name in names]
    cut = truncated(columns[1], _ends(config)).tolist()
    uids = list(dict.fromkeys(_place(key)[0] for key in keys))
    rows = zip(keys, data.pop("data_source").tolist(), data.pop("reward_model").tolist(), cut, *columns, strict=True)
    write_rollouts(
        folder / ROLLOUTS,
        step,
        (
            {
                "prompt": uids.index(_place(key)[0]),
                "sample": _place(key)[1],
                "data_source": source,
                "input": tokenizer.decode(prompt, skip_special_tokens=False),
                "output": tokenizer.decode(response, skip_special_tokens=False),
                "ground_truth": reward_model["ground_truth"],
                "score": float(scores.sum()),
                "tokens": len(response),
                "truncated": is_cut,
            }
            for key, source, reward_model, is_cut, prompt, response, scores in rows
        ),
    )


def _custom(config: Any) -> Any:
    return config.actor_rollout_ref.rollout.get("custom") or {}


def _ends(config: Any) -> set[int]:
    return special_ids(omega_conf_to_dataclass(config.actor_rollout_ref.model))[0]


def _place(key: str) -> tuple[str, int]:
    """(prompt, sample) of a response: verl's keys are <uid>_<sample>_<turn>."""
    uid, sample, _ = key.rsplit("_", 2)
    return uid, int(sample)
