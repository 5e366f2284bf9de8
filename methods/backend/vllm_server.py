"""verl's own vLLM server as rollout: the training worker's side. The weight ring is here; the server holds one set."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from verl.workers.rollout.vllm_rollout import ServerAdapter

from methods.backend.rollout import RingRollout
from methods.backend.rollout_settings import QUANTIZATIONS
from methods.backend.server_protocol import VLLM_PREFIX, socket_name
from methods.backend.staleness import Weights, checksum
from methods.backend.vllm_weights import WeightFormat


class VLLMServerRollout(RingRollout, ServerAdapter):
    """`actor_rollout_ref.rollout.name=tether_vllm`, with the options of `VLLMRollout` under `rollout.custom`.

    verl's adapter sends weights to the engine's process, through shared memory on a CPU. It is sent the sampling
    weights of the ring; the trainer asks for the current ones around a validation (`serve`).
    """

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, replica_rank: int = -1) -> None:
        super().__init__(config, model_config, device_mesh, replica_rank)
        self.quantization = str(dict(config.custom or {})["quantization"])
        self.format = WeightFormat(model_config.hf_config, QUANTIZATIONS[self.quantization])
        self.zmq_handle = f"ipc:///tmp/rl-colocate-zmq-{socket_name()}-replica-{self.replica_rank}-rank-0.sock"

    async def update_weights(
        self,
        weights: Iterable[tuple[str, Tensor]],
        wire_format: str = "named_tensors",
        global_steps: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Into the ring, and what training samples from to the server."""
        await RingRollout.update_weights(self, weights, wire_format, global_steps, **kwargs)
        await self.serve(validate=False)

    async def serve(self, validate: bool) -> None:
        """Let the server sample from the current weights, or from those that training samples from."""
        weights = self.ring.current if validate else self.ring.sampling
        if self._loaded is not weights:
            self._loaded = None
            await self._send(weights)
            self._loaded = weights
        if not validate:
            # Its checksum is what arrived: `_send` has compared.
            self.sampled = self._account(weights, weights.checksum)

    @torch.no_grad()
    async def _send(self, weights: Weights) -> None:
        tensors = self.format(weights.tensors)
        await ServerAdapter.update_weights(self, iter(tensors.items()), global_steps=weights.version)
        arrived, sent = await self.server_handle.loaded.remote(), checksum(tensors)
        if arrived != sent:
            raise RuntimeError(f"the vLLM server holds weights of checksum {arrived}, it was sent {sent}")

    def details(self) -> dict[str, Any]:
        """As `VLLMRollout.details`."""
        import vllm

        return {"vllm": vllm.__version__, "quantization": self.quantization}

    def _get_server_name_prefix(self) -> str:
        return VLLM_PREFIX
