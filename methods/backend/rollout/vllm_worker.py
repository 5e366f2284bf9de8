"""What vLLM's worker adds for us, in the engine's own process. vLLM is told the class by its path; verl stays out."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
from typing import Any

import torch
from safetensors.torch import load

from methods.backend.rollout.staleness import checksum
from methods.backend.rollout.vllm_weights import keep_int8_scales


class CPUWorkerExtension:
    """In place of verl's `vLLMColocateWorkerExtension`, whose updates go tensor by tensor through `load_weights`: on a
    CPU, where linear layers are repacked and dropped, that fails and leaves old and new weights mixed."""

    def __new__(cls, *_: Any, **__: Any) -> CPUWorkerExtension:
        end_with_parent()
        keep_int8_scales()
        # vLLM compiles the ranks of its log-probs even in eager mode: seconds, for a number that nobody here reads.
        torch.compiler.set_stance("force_eager")
        return super().__new__(cls)

    def monkey_patch_model(self, vocab_size: int, banned_token_ids: list[int] | None = None) -> None:
        """verl masks ids beyond the tokenizer's here. The trainer has no such mask, and pi would not be mu."""

    def load(self, payload: bytes) -> int:
        """Replace all weights by those of a safetensors file; returns the checksum of what arrived."""
        tensors = load(payload)
        self.reload_weights(weights_iterator=iter(tensors.items()))  # type: ignore[attr-defined]
        return checksum(tensors)


def end_with_parent() -> None:
    """Let the kernel kill this process when the actor that spawned it ends: a killed actor takes nobody along."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent.pid:
        os.kill(os.getpid(), signal.SIGKILL)
