"""The names of verl that this package replaces, all of them, for the version they were compared with.

Each does what verl's own does, to the last bit, without a Python loop over rows; tests hold the two together. Under
another version of verl nothing is replaced, and `methods.backend.padded` leaves the training step to verl.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor

from methods.backend.local_queue import LocalBatchMeta
from methods.backend.rollout.batch import like

COMPARED_WITH = "0.9.1"


def same_version() -> bool:
    """Whether verl is the version that the replacements were compared with."""
    return version("verl") == COMPARED_WITH


def no_padding_2_padding(tensor: Tensor, data: Any) -> Tensor:
    """Model outputs at the tokens before each response token: [B, T, ...], zeros in the padding.

    tensor: jagged or packed over whole sequences. One that is [B, T] already comes from a padded batch.
    (verl/workers/utils/padding.py)
    """
    if not tensor.is_nested and not data["responses"].is_nested:
        return tensor
    values = tensor.values() if tensor.is_nested else tensor
    lengths = data["responses"].offsets().diff()
    ends = (data["prompts"].offsets().diff() + lengths).cumsum(0)
    places = torch.arange(int(lengths.max()), device=values.device)
    inside = places < lengths.unsqueeze(1)
    rows = torch.where(inside, (ends - 1 - lengths).unsqueeze(1) + places, 0)
    padded = values[rows]
    return torch.where(inside.view(*inside.shape, *[1] * (padded.dim() - 2)), padded, 0.0)


def response_to_nested(tensor: Tensor, response_mask: Tensor) -> Tensor:
    """Right-padded [B, T] to a jagged column over the responses (verl/workers/utils/padding.py)."""
    lengths = response_mask.offsets().diff()
    return like(response_mask, tensor[torch.arange(tensor.shape[1]) < lengths.unsqueeze(1)])


def replace_in_worker() -> None:
    """What the training step looks up, in whichever process the worker lives."""
    from verl.workers.utils import losses

    if same_version():
        losses.no_padding_2_padding = no_padding_2_padding


def replace_in_driver() -> None:
    """What the in-process trainer looks up."""
    from verl.trainer.ppo.v1 import replay_buffer, trainer_base

    if same_version():
        trainer_base.response_to_nested = response_to_nested
        trainer_base.KVBatchMeta = replay_buffer.KVBatchMeta = LocalBatchMeta
