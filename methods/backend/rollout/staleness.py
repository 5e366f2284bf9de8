"""The rollout policy as the weights of `staleness` synchronisations ago: a ring of past weights.

Asynchronous training makes mu old; here the age is a setting, so that off-policy behaviour can be studied exactly.
Versions are verl's global steps: version t holds the weights after t training steps.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Weights:
    """One set of rollout weights: version (global step), checksum of the bytes, named tensors."""

    version: int
    checksum: int
    tensors: dict[str, Tensor]


def checksum(tensors: Mapping[str, Tensor]) -> int:
    """CRC-32 over names and bytes, in sorted order of the names."""
    value = 0
    for name in sorted(tensors):
        value = zlib.crc32(name.encode(), value)
        data = tensors[name].detach().cpu().contiguous().flatten().view(torch.uint8)
        value = zlib.crc32(memoryview(data.numpy()), value)
    return value


class WeightRing:
    """The last `staleness` + 1 synchronised weights. `sampling` is the oldest of them, `current` the newest."""

    def __init__(self, staleness: int) -> None:
        if staleness < 0:
            raise ValueError(f"staleness = {staleness}: allowed is an integer >= 0")
        self.staleness = staleness
        self._ring: deque[Weights] = deque(maxlen=staleness + 1)

    def push(self, version: int, tensors: dict[str, Tensor]) -> None:
        """Add the weights after a synchronisation; a repeated version replaces the newest entry."""
        if self._ring and self._ring[-1].version == version:
            self._ring.pop()
        self._ring.append(Weights(version, checksum(tensors), tensors))

    @property
    def sampling(self) -> Weights:
        """Weights that rollouts for training are sampled from."""
        return self._ring[0]

    @property
    def current(self) -> Weights:
        """The newest weights: validation samples from these."""
        return self._ring[-1]

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on; part of a checkpoint."""
        return {"staleness": self.staleness, "ring": [(w.version, w.tensors) for w in self._ring]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises ValueError when the checkpoint was written with another staleness."""
        if state["staleness"] != self.staleness:
            raise ValueError(
                f"checkpoint holds a weight ring of staleness {state['staleness']}, the configuration says "
                f"{self.staleness}"
            )
        self._ring.clear()
        for version, tensors in state["ring"]:
            self.push(version, tensors)
