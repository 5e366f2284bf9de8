"""The states of a mini-batch: where its response tokens are predicted, and both policies' logits there.

Shapes: B sequences, T response tokens (padded), N response tokens of the mini-batch (packed, row by row), V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

Forward = Callable[..., Tensor]


@dataclass(frozen=True)
class States:
    """Right-padded inputs [B, L] of a mini-batch; `predicts` [B, L]: the row before a response token predicts it."""

    input_ids: Tensor
    attention_mask: Tensor
    position_ids: Tensor
    predicts: Tensor
    lengths: Tensor

    @classmethod
    def of(cls, part: TensorDict) -> States:
        """From verl's jagged columns `input_ids` and `responses`."""
        ends, lengths = part["input_ids"].offsets().diff(), part["responses"].offsets().diff()
        ids = part["input_ids"].to_padded_tensor(0)
        places = torch.arange(ids.shape[1], device=ids.device).expand(ids.shape)
        predicts = (places >= (ends - 1 - lengths).unsqueeze(1)) & (places < (ends - 1).unsqueeze(1))
        return cls(ids, (places < ends.unsqueeze(1)).long(), places, predicts, lengths)

    def logits(self, forward: Forward, rows: int, keep: Tensor) -> Tensor:
        """[kept, V] float32 logits at the kept response tokens, `rows` sequences per forward pass.

        keep: [N] bool over the packed response tokens.
        """
        wanted = torch.zeros_like(self.predicts)
        wanted[self.predicts] = keep
        parts = []
        for start in range(0, len(self.input_ids), rows):
            chosen = slice(start, start + rows)
            out = forward(
                input_ids=self.input_ids[chosen],
                attention_mask=self.attention_mask[chosen],
                position_ids=self.position_ids[chosen],
            )
            parts.append(out[wanted[chosen]].float())
        return torch.cat(parts)

    def positions(self) -> tuple[Tensor, Tensor]:
        """(row, position in the response) of each of the N packed response tokens."""
        rows = torch.arange(len(self.lengths)).repeat_interleave(self.lengths)
        starts = self.lengths.cumsum(0) - self.lengths
        return rows, torch.arange(int(self.lengths.sum())) - starts[rows]

    def to_padded(self, values: Tensor) -> Tensor:
        """Packed [N, ...] to [B, T, ...] with zeros in the padding."""
        mask = self.mask()
        out = values.new_zeros(*mask.shape, *values.shape[1:])
        out[mask] = values
        return out

    def mask(self) -> Tensor:
        """[B, T] bool: the response mask."""
        return torch.arange(int(self.lengths.max())).unsqueeze(0) < self.lengths.unsqueeze(1)


def rollout_forward(rollout: Any) -> Forward:
    """Logits of the policy that sampled: the stale weights in the rollout's own precision."""
    model = rollout.sampling_model()

    @torch.no_grad()
    def forward(**inputs: Tensor) -> Tensor:
        return model(**inputs, use_cache=False).logits

    return forward
