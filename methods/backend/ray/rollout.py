"""The rollout inside verl's Ray workers: how the driver of a training reaches it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ray
import torch
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry

from methods.backend.rollout.engines import ENGINES
from methods.backend.rollout.sampling import Generation, Share


class WorkerReplica(RolloutReplica):
    """verl's view of a rollout that needs no server process: its handle is the training worker itself."""

    async def launch_servers(self) -> None:
        """Nothing to launch; without servers verl's sleep and wake-up calls reach nobody."""
        self._server_handle = self.workers[0]
        self._server_address = f"worker-{self.replica_rank}"


class WorkerRollout:
    """What the batch manager samples with: each worker takes a contiguous share of the prompts."""

    def __init__(self, workers: Sequence[Any]) -> None:
        self.workers = list(workers)

    def generate(self, prompts: list[list[int]], step: int, validate: bool, temperature: float) -> Generation:
        """As `HFRollout.generate`, over all workers; the tokens do not depend on how many there are."""
        bounds = [len(prompts) * i // len(self.workers) for i in range(len(self.workers) + 1)]
        calls = [
            worker.__ray_call__.remote(
                _generate, prompts[start:stop], step, validate, temperature, Share(start, len(prompts))
            )
            for worker, start, stop in zip(self.workers, bounds, bounds[1:], strict=False)
            if stop > start
        ]
        return join_generations(ray.get(calls))


def _generate(actor: Any, *arguments: Any) -> Generation:
    """Runs in the actor, which holds one worker object per role (single_controller/ray/base.py, WorkerDict)."""
    (worker,) = (each for each in actor.worker_dict.values() if getattr(each, "rollout", None) is not None)
    return worker.rollout.generate(*arguments)


def join_generations(parts: Sequence[Generation]) -> Generation:
    """One generation out of those of consecutive rows, padded to the longest."""
    versions = {part.version for part in parts}
    if len(versions) != 1:
        raise RuntimeError(f"the ranks sampled from weights of different versions: {sorted(versions)}")
    width = max(part.tokens.shape[1] for part in parts)

    def rows(name: str) -> Any:
        values = [getattr(part, name) for part in parts]
        if values[0] is None:
            return None
        return torch.cat([_widen(value, width) if value.ndim > 1 else value for value in values])

    return Generation(
        tokens=rows("tokens"),
        lengths=rows("lengths"),
        logp=rows("logp"),
        support_ids=rows("support_ids"),
        support_logp=rows("support_logp"),
        version=versions.pop(),
    )


def _widen(values: torch.Tensor, width: int) -> torch.Tensor:
    missing = width - values.shape[1]
    return torch.cat([values, values.new_zeros(values.shape[0], missing, *values.shape[2:])], dim=1)


for _name, _ in ENGINES.values():
    RolloutReplicaRegistry.register(_name, lambda: WorkerReplica)
