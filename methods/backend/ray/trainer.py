"""verl's PPO trainer on Ray, as `verl.trainer.main_ppo` builds it, with our worker and our batch manager.

Loaded by VERL_USE_EXTERNAL_MODULES=methods.backend.plugin,methods.backend.ray.trainer; selected by
trainer.v1.trainer_mode=tether_ray. With trainer.tether_work_dir it keeps the run's record there.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.utils import Role
from verl.trainer.ppo.v1 import register_trainer

from methods.backend.compose import verify
from methods.backend.ray import loop as server_loop  # noqa: F401  # it registers
from methods.backend.ray import server as rollout_server  # noqa: F401  # it register
from methods.backend.ray import vllm_server
from methods.backend.ray.rollout import WorkerRollout
from methods.backend.rollout.engines import SERVERS
from methods.backend.run import folder as run_folder
from methods.backend.run.record import record
from methods.backend.run_config import RunConfig
from methods.backend.trainer import ENGINE_COLUMNS, TetherTrainer
from methods.backend.worker import TetherWorker

NAME = "tether_ray"
REPORT_FILE, PROGRESS_FILE = "worker.json", "progress.jsonl"
POLL_SECONDS = 0.02
SERVER_NAMES = [name for name, _ in SERVERS.values()]


@register_trainer(NAME)
class RayTrainer(TetherTrainer):
    """`trainer.v1.trainer_mode=tether_ray`."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.replay_buffer.sample = whole(self.replay_buffer.sample, config.actor_rollout_ref.rollout)
        # verl/trainer/ppo/v1/replay_buffer.py:144 polls every 2 s and has no key for it: more than a toy step takes.
        self.replay_buffer.poll_interval = POLL_SECONDS

    def _init_resource_pool_mgr(self) -> None:
        """trainer_base.py:813 names verl's worker class; there is no key for another one."""
        super()._init_resource_pool_mgr()
        for role in (Role.Actor, Role.ActorRollout, Role.ActorRolloutRef):
            if role in self.role_worker_mapping:
                self.role_worker_mapping[role] = ray.remote(TetherWorker)

    def init(self) -> None:
        """verl's initialisation; then the workers say what they run, and the run's record is opened."""
        if self.samples_with_vllm_server:
            # An engine takes seconds to start, and workers too; verl would start one after the other.
            settings = self.config.actor_rollout_ref
            self._servers = [vllm_server.start(settings.rollout, settings.model, rank) for rank in range(self.ranks)]
        super().init()
        folder = self.config.trainer.get("tether_work_dir")
        if folder is None:
            return
        work = Path(folder)
        run = RunConfig.build({**run_folder.settings_in(work), "output": "", "work": folder})
        reports = self.actor_rollout_wg.report()
        for report in reports:
            verify(run, report)
        run_folder.write_json(work / REPORT_FILE, {**reports[0], "ranks": len(reports)})
        record(self, run, Reporter(work / PROGRESS_FILE, self.global_steps))

    @property
    def samples_with_vllm_server(self) -> bool:
        return self.config.actor_rollout_ref.rollout.name == vllm_server.NAME

    def get_llm_client(self) -> Any:
        """What the batch manager gets: the workers themselves; verl's client would route one sample at a time."""
        if self.config.actor_rollout_ref.rollout.name in SERVER_NAMES:
            return super().get_llm_client()
        return WorkerRollout(self.actor_rollout_wg.workers)

    def _validate(self) -> dict[str, float]:
        """With the current weights in a server that holds one set at a time."""
        if not self.samples_with_vllm_server:
            return super()._validate()
        self.actor_rollout_wg.serve(validate=True)
        try:
            return super()._validate()
        finally:
            self.actor_rollout_wg.serve(validate=False)

    def _submit_batch_to_rollout(self, batch: TensorDict) -> int:
        self._submitted = {uid: place for place, uid in enumerate(batch["uid"])}
        return super()._submit_batch_to_rollout(batch)

    def _balance_batch(self, batch: KVBatchMeta, metrics: dict[str, Any], **kwargs: Any) -> KVBatchMeta:
        """Back to the order of submission: agent loops put responses into the queue as they finish."""
        order = [(self._submitted[key.split("_")[0]], int(key.split("_")[1])) for key in batch.keys]
        batch.reorder(sorted(range(len(order)), key=order.__getitem__))
        return super()._balance_batch(batch, metrics, **kwargs)

    def _update_actor(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        """Send the engine's columns only: trainer_base.py:1873 sends all of them, objects included."""
        fields, batch.fields = batch.fields, list(ENGINE_COLUMNS)
        try:
            return super()._update_actor(batch, metrics)
        finally:
            batch.fields = fields


def whole(sample: Callable[..., Any], rollout: Any) -> Callable[..., Any]:
    """verl's sampling of the replay buffer, but never less than what was submitted.

    Of a prompt whose request failed verl (replay_buffer.py:442) takes the responses that came back, or leaves it out:
    a step on part of a batch, after which the run would no longer be the one that was asked for.
    """

    def sample_whole(*, partition_id: str, batch_size: int, **rest: Any) -> Any:
        expected = batch_size * (rollout.val_kwargs.n if partition_id == "val" else rollout.n)
        batch, metrics = sample(partition_id=partition_id, batch_size=batch_size, **rest)
        if len(batch.keys) < expected:
            raise RuntimeError(
                f"the rollout gave {len(batch.keys)} of {expected} responses; why is in the log of its agent loops"
            )
        return batch, metrics

    return sample_whole


class Reporter:
    """Rows for the launcher's progress line: it sits in another process. The first row is the step to go on from."""

    def __init__(self, path: Path, first_step: int) -> None:
        self.path = path
        self(first_step, {})

    def __call__(self, step: int, data: dict[str, float]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps([step, data]) + "\n")
