"""Responses that are left out of the loss, and responses that are kept as files; both off by default.

Shapes: N responses of a training step, in the order in which they were submitted: group by group.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from methods.files import write_text

# Column of the batch: how many responses of a response's mini-batch stay in the loss; 0 where it does not itself.
KEPT = "tether_kept_responses"
ROLLOUTS = "rollouts"


def truncated(responses: Sequence[Tensor], end_ids: Iterable[int]) -> Tensor:
    """[N] bool: responses without an end token as their last, which the limit cut off."""
    ends = torch.tensor(sorted(end_ids))
    return torch.stack([~torch.isin(tokens[-1], ends) for tokens in responses])


def flat(scores: Tensor, groups: Sequence[str]) -> Tensor:
    """[N] bool: responses of a group whose rewards are all equal, so that every advantage of it is 0."""
    spread: dict[str, tuple[float, float]] = {}
    for group, score in zip(groups, scores.tolist(), strict=True):
        low, high = spread.get(group, (score, score))
        spread[group] = (min(low, score), max(high, score))
    return torch.tensor([spread[group][0] == spread[group][1] for group in groups])


def kept_in_mini_batch(left_out: Tensor, mini_batch: int) -> Tensor:
    """[N] int64, the column KEPT. mini_batch: its responses; N is a multiple of it."""
    kept = ~left_out
    counts = kept.view(-1, mini_batch).sum(1).repeat_interleave(mini_batch)
    return torch.where(kept, counts, 0)


def write_rollouts(folder: Path, step: int, rows: Iterable[Mapping[str, Any]]) -> None:
    """step_000001.jsonl, one response a line; the file appears whole, and a resumed run writes the same bytes again."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"step_{step:06d}.jsonl"
    lines = (json.dumps({"step": step, **row}, ensure_ascii=False, default=_plain) for row in rows)
    write_text(path, "".join(line + "\n" for line in lines))


def _plain(value: Any) -> Any:
    """Values of a parquet file that JSON does not know."""
    return value.tolist() if hasattr(value, "tolist") else str(value)
