"""verl's PPO trainer in one process: its own loop, data, advantages and checkpoints; no Ray actors, no servers."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import transfer_queue as tq
from omegaconf import open_dict
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.single_controller.ray import ResourcePoolManager
from verl.trainer.ppo.v1 import PPOTrainerSync, register_trainer
from verl.utils import tensordict_utils as tu

from methods.backend import replaced
from methods.backend.local_queue import LocalQueue
from methods.backend.loss import requirements
from methods.backend.requirements import UNIFORMS, uniforms
from methods.backend.rollout import batch_selection
from methods.backend.rollout.batch import SUPPORT_IDS, SUPPORT_LOGP, to_jagged
from methods.backend.rollout.selection import KEPT
from methods.backend.run import trackers
from methods.backend.run.log import RunLog
from methods.backend.worker import TetherWorker
from methods.registry import Needs

NAME = "tether_inprocess"
# What engine and losses read. Each further to_jagged column costs verl a Python loop over all rows per mini-batch
# (utils/tensordict_utils.py:458).
ENGINE_COLUMNS = (
    "prompts",
    "responses",
    "response_mask",
    "loss_mask",
    "input_ids",
    "position_ids",
    "old_log_probs",
    "ref_log_prob",
    "rollout_is_weights",
    "advantages",
    SUPPORT_IDS,
    SUPPORT_LOGP,
    UNIFORMS,
    KEPT,
)


class LocalWorkerGroup:
    """The worker-group surface that the trainer uses, over one worker object in this process."""

    world_size = 1

    def __init__(self, worker: TetherWorker, queue: LocalQueue) -> None:
        self.worker, self.queue = worker, queue
        self._dispatch_info = {"actor": [0]}

    def update_actor(self, batch: KVBatchMeta) -> dict[str, Any]:
        """One training step; returns {"metrics": ...}."""
        return {"metrics": tu.get(self.worker.update_actor(self._tensors(batch)), "metrics")}

    def compute_log_prob(self, batch: KVBatchMeta) -> KVBatchMeta:
        """Log-probs of the current weights, written back to the queue."""
        out = self.worker.compute_log_prob(self._tensors(batch))
        self.queue.kv_batch_put(batch.keys, batch.partition_id, out.select("log_probs", "entropy", strict=False))
        return batch

    def compute_ref_log_prob(self, batch: KVBatchMeta) -> KVBatchMeta:
        """Log-probs of the reference model, written back to the queue; the trainer renames them."""
        out = self.worker.compute_ref_log_prob(self._tensors(batch))
        self.queue.kv_batch_put(batch.keys, batch.partition_id, out.select("log_probs"))
        return batch

    def save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        self.worker.save_checkpoint(*args, **kwargs)

    def load_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        self.worker.load_checkpoint(*args, **kwargs)

    def update_weights(self, global_steps: int | None = None) -> None:
        """Weight sync from trainer to rollout."""
        asyncio.run(self.worker.update_weights(global_steps=global_steps, mode="naive"))

    def _tensors(self, batch: KVBatchMeta) -> TensorDict:
        data = self.queue.kv_batch_get(batch.keys, batch.partition_id, list(ENGINE_COLUMNS))
        for name, value in batch.extra_info.items():
            tu.assign_non_tensor_data(data, name, value)
        return data


class TetherTrainer(PPOTrainerSync):
    """What both runners add to verl's trainer: the run's own record, exported checkpoints, fixed mini-batches."""

    def __init__(self, config: Any) -> None:
        with open_dict(config):
            # The base class switches on asynchronous branches for every mode but the string "sync".
            config.trainer.v1.trainer_mode = "sync"
        super().__init__(config)
        self.run_log: RunLog | None = None
        self.on_checkpoint: Callable[[int, Path], None] | None = None
        self.on_step: Callable[[int], None] | None = None
        self._saved: Path | None = None
        self._sampled: list[str] = []

    def _balance_batch(self, batch: KVBatchMeta, metrics: dict[str, Any], **kwargs: Any) -> KVBatchMeta:
        """Keep mini-batches what they are on one rank, and give each rank an equal share of every one.

        verl (trainer_base.py:1608) balances lengths over the whole batch, so that a mini-batch holds other responses
        for every number of ranks; for a single one it would still search, 90 ms a step.
        """
        actor = self.config.actor_rollout_ref.actor
        size = actor.ppo_mini_batch_size * self.config.actor_rollout_ref.rollout.n
        submitted = self._sampled = list(batch.keys)
        metrics |= batch_selection.leave_out(self.config, batch, size)
        if len(batch.keys) % size or len(batch.keys) % self._get_required_batch_multiple(1):
            batch = super()._balance_batch(batch, metrics, **kwargs)
        elif self.ranks > 1:
            batch.reorder(rank_order(len(batch.keys), size, self.ranks))
        if Needs.RANDOM in requirements(actor.policy_loss):
            self._put_uniforms(batch, submitted)
        return batch

    def _put_uniforms(self, batch: KVBatchMeta, submitted: list[str]) -> None:
        """A column of random numbers: each response's by its place in the submitted batch, wherever it is trained."""
        rollout = self.config.actor_rollout_ref.rollout
        mask = tq.kv_batch_get(batch.keys, batch.partition_id, ["response_mask"])["response_mask"]
        # Rows that verl adds to fill a batch come after all others.
        places = {key: place for place, key in enumerate(submitted)}
        rows = [places.setdefault(key, len(places)) for key in batch.keys]
        seed = int((rollout.get("custom") or {}).get("seed", rollout.seed))
        numbers = uniforms(seed, self.global_steps, len(places), self.config.data.max_response_length)
        column = to_jagged(numbers[rows], mask.offsets().diff())
        tq.kv_batch_put(
            keys=batch.keys,
            partition_id=batch.partition_id,
            fields=TensorDict({UNIFORMS: column}, batch_size=[len(rows)]),
        )

    @property
    def ranks(self) -> int:
        """Data-parallel workers."""
        return int(self.config.trainer.n_gpus_per_node * self.config.trainer.nnodes)

    def _save_checkpoint(self) -> None:
        super()._save_checkpoint()
        self._saved = Path(self.config.trainer.default_local_dir) / f"global_step_{self.global_steps}"

    def _validate(self) -> dict[str, float]:
        metrics = super()._validate()
        trackers.rename(metrics)
        if self.run_log is not None and self.global_steps == self.run_log.first_step:
            self.run_log.write(self.global_steps, metrics)
        return metrics

    def _compute_metrics(
        self, batch: KVBatchMeta, metrics: dict[str, Any], timing_raw: dict[str, float], global_steps: int, epoch: int
    ) -> None:
        super()._compute_metrics(batch, metrics, timing_raw, global_steps=global_steps, epoch=epoch)
        trackers.rename(metrics)
        if self.run_log is not None:
            folder = self.run_log.metrics_path.parent
            batch_selection.keep_rollouts(
                self.config, self.tokenizer, batch.partition_id, self._sampled, folder, global_steps
            )
        if self.on_step is not None:
            # Before the row of the step: whatever a resumed run keeps is complete up to its last row.
            self.on_step(global_steps)
        if self.run_log is not None:
            self.run_log.write(global_steps, metrics)
        # Only now: a run that resumes from a checkpoint must find the row of its step.
        if self._saved is not None and self.on_checkpoint is not None:
            self.on_checkpoint(global_steps, self._saved)
        self._saved = None


def rank_order(rows: int, mini_batch: int, ranks: int) -> list[int]:
    """Order of a batch whose contiguous split over ranks gives each an equal share of every mini-batch."""
    share = mini_batch // ranks
    return [
        start + rank * share + i for rank in range(ranks) for start in range(0, rows, mini_batch) for i in range(share)
    ]


@register_trainer(NAME)
class InProcessTrainer(TetherTrainer):
    """`trainer.v1.trainer_mode=tether_inprocess`; run by `methods.backend.launch`, single rank."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.queue = LocalQueue()
        self.queue.install()
        replaced.replace_in_driver()

    def fit(self, *args: Any, **kwargs: Any) -> None:
        """verl's loop; what stands when it begins is no garbage, and is not searched for any each time."""
        gc.collect()
        gc.freeze()
        try:
            super().fit(*args, **kwargs)
        finally:
            gc.unfreeze()

    def _setup(self) -> None:
        """verl's set-up (trainer_base.py:226) with one worker object in place of Ray's worker groups and servers."""
        self._init_tokenizer()
        self._init_dataloader()
        self._init_dump_executor()
        os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1", RAY_LOCAL_WORLD_SIZE="1")
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        # Read by verl's Worker, used by nobody: see engine.init_process_group.
        os.environ.setdefault("MASTER_PORT", "0")
        self.resource_pool_manager = ResourcePoolManager({"global_pool": [1]}, {})
        self.ref_in_actor = False
        role = "actor_rollout_ref" if self.use_reference_policy else "actor_rollout"
        self.worker = TetherWorker(config=self.config.actor_rollout_ref, role=role)
        self.actor_rollout_wg = self.ref_policy_wg = LocalWorkerGroup(self.worker, self.queue)
        self.worker.init_model()
        self.reward_loop_manager = SimpleNamespace(reward_loop_worker_handles=[])
        self.distillation_config = self.teacher_model_manager = self.llm_server_manager = None
        self.checkpoint_manager = SimpleNamespace(
            update_weights=self.actor_rollout_wg.update_weights, sleep_replicas=lambda: None
        )
        self._load_checkpoint()
