"""The rollout as a server: a Ray actor that samples for verl's own agent loops, one request per response.

Its tokens are seeded per request, so that they do not depend on which requests happen to be sampled together; their
log-probs do, in the last bits, as in any engine that batches what arrives. So a lone server, which is told how many
requests a step has, waits for all of them: two runs then give the same bytes. Several servers cannot know their share.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import ray
import torch
from torch import Tensor
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.torch_dtypes import PrecisionType
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry, TokenOutput

from methods.backend.ray.protocol import REQUEST, SUPPORT, Request
from methods.backend.rollout.base import HFRollout
from methods.backend.rollout.engines import SERVERS, refuse_unknown
from methods.backend.rollout.sampling import Generation

NAME = SERVERS["hf"][0]
# The other responses of a step arrive within milliseconds; waiting for them makes one batch of most.
GATHER_SECONDS = 0.01
# Without news for so long, a request must have failed on its way; the others are answered without it.
PATIENCE_SECONDS = 30.0
# A whole step or validation waits in the server; verl's 1000 would hold back the requests that are waited for.
MOST_REQUESTS = 100_000


@dataclass
class Waiting:
    """A request that has come, and where its answer goes."""

    request: Request
    prompt: list[int]
    answer: asyncio.Future[TokenOutput]


# What can be sampled together: temperature, step, whether it is a validation.
Group = tuple[float, int, bool]


class HFServer:
    """Actor around one `HFRollout`."""

    def __init__(self, config: Any, model_config: Any) -> None:
        from methods.backend import plugin  # noqa: F401

        self.rollout = HFRollout(config, omega_conf_to_dataclass(model_config), None)
        self._waiting: dict[Group, list[Waiting]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def update_weights(self, tensors: dict[str, Tensor], step: int | None) -> None:
        """Take the trainer's weights."""
        await self.rollout.update_weights(tensors.items(), global_steps=step)

    async def generate(
        self, prompt_ids: list[int], sampling_params: Mapping[str, Any], request_id: str, **_: Any
    ) -> TokenOutput:
        """verl's call for one response. Raises KeyError without our agent loop, which says what the request is."""
        request = sampling_params[REQUEST]
        waiting = Waiting(request, list(prompt_ids), asyncio.get_running_loop().create_future())
        group = (float(sampling_params["temperature"]), request.step, request.validate)
        others = self._waiting.setdefault(group, [])
        others.append(waiting)
        if len(others) == request.batch:
            self._serve(group)
        elif len(others) == 1:
            task = asyncio.create_task(self._serve_later(group, PATIENCE_SECONDS if request.batch else GATHER_SECONDS))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await waiting.answer

    async def _serve_later(self, group: Group, pause: float) -> None:
        """Serve what has come once nothing more comes."""
        known = 0
        while known < (now := len(self._waiting.get(group, ()))):
            known = now
            await asyncio.sleep(pause)
        if known:
            self._serve(group)

    def _serve(self, group: Group) -> None:
        """Answer all of a group at once, in an order that does not depend on who came first."""
        entries = sorted(self._waiting.pop(group, ()), key=lambda each: (each.request.index, each.request.sample))
        if not entries:
            return
        temperature, step, validate = group
        try:
            out = self.rollout.generate(
                [each.prompt for each in entries],
                step,
                validate,
                temperature,
                requests=[(each.request.index, each.request.sample) for each in entries],
            )
        except Exception as error:
            for each in entries:
                each.answer.set_exception(error)
            return
        for row, each in enumerate(entries):
            each.answer.set_result(_output(out, row))

    async def sampled(self) -> dict[str, int]:
        """Versions and checksums behind the latest training rollout."""
        return self.rollout.sampled

    async def precision(self) -> dict[str, str]:
        """What its model computes in."""
        return self.rollout.precision()

    async def ring_state(self) -> dict[str, Any]:
        """Past weights, for a checkpoint."""
        return self.rollout.ring.state_dict()

    async def load_ring(self, state: Mapping[str, Any]) -> None:
        """Past weights, from a checkpoint."""
        self.rollout.ring.load_state_dict(state)


def _output(out: Generation, row: int) -> TokenOutput:
    length = int(out.lengths[row])
    extra: dict[str, Any] = {"global_steps": out.version}
    if out.support_ids is not None and out.support_logp is not None:
        extra[SUPPORT] = (out.support_ids[row, :length].clone(), out.support_logp[row, :length].clone())
    return TokenOutput(
        token_ids=out.tokens[row, :length].tolist(),
        log_probs=out.logp[row, :length].tolist(),
        stop_reason="completed",
        extra_fields=extra,
    )


def server_name(rank: int) -> str:
    return f"tether_hf_server_{rank}"


class ServerReplica(RolloutReplica):
    """Starts the actor; it holds no accelerator memory that verl could put to sleep, so `servers` stays empty."""

    async def launch_servers(self) -> None:
        actor = ray.remote(HFServer).options(name=server_name(self.replica_rank), max_concurrency=MOST_REQUESTS)
        self._server_handle = actor.remote(self.config, self.model_config)
        self._server_address = server_name(self.replica_rank)
        await self._server_handle.sampled.remote()


class ServerRollout(BaseRollout):
    """The training worker's side: sends weights, and knows what the server samples from."""

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, replica_rank: int = -1) -> None:
        super().__init__(config, model_config, device_mesh)
        custom = dict(config.custom or {})
        refuse_unknown("rollout.custom", custom)
        self.rank = int(os.environ.get("RANK", "0"))
        self.dtype = PrecisionType.to_dtype(config.dtype)
        self.top_k = int(custom.get("top_k", 0))
        self.ring = ServerRing(int(custom.get("staleness", 0)), self.rank)

    async def resume(self, tags: list[str]) -> None:
        """Nothing to wake up."""

    async def release(self) -> None:
        """Nothing to put to sleep."""

    @torch.no_grad()
    async def update_weights(
        self, weights: Iterable[tuple[str, Tensor]], global_steps: int | None = None, **_: Any
    ) -> None:
        """Every rank serves its own replica, and each gathers the full tensors."""
        tensors = {name: tensor.detach().to("cpu", self.dtype, copy=True) for name, tensor in weights}
        await ray.get_actor(server_name(self.rank)).update_weights.remote(tensors, global_steps)

    def precision(self) -> dict[str, str]:
        """As `HFRollout.precision`, asked of the server."""
        return ray.get(ray.get_actor(server_name(self.rank)).precision.remote())

    def details(self) -> dict[str, Any]:
        """Nothing more for the manifest."""
        return {}

    @property
    def sampled(self) -> dict[str, int]:
        """As `HFRollout.sampled`, asked of the server."""
        return ray.get(ray.get_actor(server_name(self.rank)).sampled.remote())


class ServerRing:
    """The server's weight ring, as the worker's checkpoints see it."""

    def __init__(self, staleness: int, rank: int) -> None:
        self.staleness, self.rank = staleness, rank

    def state_dict(self) -> dict[str, Any]:
        return ray.get(ray.get_actor(server_name(self.rank)).ring_state.remote())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        ray.get(ray.get_actor(server_name(self.rank)).load_ring.remote(state))


RolloutReplicaRegistry.register(NAME, lambda: ServerReplica)
