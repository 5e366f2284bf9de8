"""verl's extension of vLLM's worker, for CPUs: how weights enter the engine's process. Named to vLLM by its path."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightReceiver
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension

from methods.backend.staleness import checksum
from methods.backend.vllm_weights import keep_int8_scales


class CPUWorkerExtension(vLLMColocateWorkerExtension):
    """Takes a whole set of weights before it touches the model, and remembers which it was."""

    def __new__(cls, **kwargs: Any) -> CPUWorkerExtension:
        keep_int8_scales()
        return super().__new__(cls, **kwargs)

    def update_weights_from_ipc(
        self, peft_config: dict[str, Any] | None = None, base_sync_done: bool = False, use_shm: bool = True
    ) -> None:
        """verl's own (vllm_rollout/utils.py:248) calls `model.load_weights` for each bucket, which fails on a CPU.

        There linear layers are repacked and their tensors dropped; the failure would leave old and new weights mixed.
        """
        received: dict[str, Tensor] = {}

        def keep(weights: list[tuple[str, Tensor]], is_last: bool) -> None:
            # The sender fills its buffer anew for the next bucket.
            received.update((name, tensor.clone()) for name, tensor in weights)

        receiver = BucketedWeightReceiver(self._get_zmq_handle(), torch.device("cpu"), use_shm=use_shm)
        receiver.receive_weights(on_bucket_received=keep)
        self.loaded_checksum = None
        self.reload_weights(weights_iterator=iter(received.items()))
        self.loaded_checksum = checksum(received)

    def loaded(self) -> int | None:
        """Checksum of the tensors that were loaded last, as they arrived; None after a load that failed."""
        return getattr(self, "loaded_checksum", None)
