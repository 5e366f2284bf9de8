"""verl's training worker with our loss: it carries the support from rollout to loss and counts what happens."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor
from verl.plugin.platform import get_platform
from verl.single_controller.base.decorator import Dispatch, make_nd_compute_dataproto_dispatch_fn, register
from verl.trainer.ppo.core_algos import get_policy_loss_fn
from verl.utils import tensordict_utils as tu
from verl.workers.engine_workers import ActorRolloutRefWorker
from verl.workers.utils.padding import response_from_nested

from methods.backend import replaced
from methods.backend.engine import init_process_group
from methods.backend.experts import differences, record_routing, routers
from methods.backend.loss import method_of
from methods.backend.metrics import TokenMetrics
from methods.backend.mini_batches import TetherTrainingWorker, mini_batches, with_settings
from methods.backend.requirements import ANCHOR, degenerate, refuse_impossible_batch
from methods.backend.rollout.batch import SUPPORT_IDS
from methods.backend.rollout.selection import KEPT
from methods.backend.support_loss import SupportLoss
from methods.backend.tokens.states import States
from methods.registry import Needs

RING_FILE = "tether_rollout_ring_rank_{rank}.pt"


class TetherWorker(ActorRolloutRefWorker):
    """Adds to verl's worker: the loss above, token-weighted metrics, and the weight ring in its checkpoints."""

    actor_worker_cls = TetherTrainingWorker

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def init_model(self) -> None:
        """Build engine and rollout, then install our loss. Raises where a method's needs are not met."""
        init_process_group()
        replaced.replace_in_worker()
        super().init_model()
        if "actor" not in self.role:
            return
        config = self.loss_fn.keywords["config"]
        if config.engine.ulysses_sequence_parallel_size > 1:
            raise NotImplementedError("ulysses_sequence_parallel_size > 1: support rows are not gathered across shards")
        tokenizer = config.model_config.tokenizer
        self.support_loss = SupportLoss(config, vocab_size=len(tokenizer))
        self.support_loss.metrics.radius = getattr(config.policy_loss, "diagnostic_radius", 0.15)
        self.actor.set_loss_fn(self.support_loss)

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="actor"))
    def update_actor(self, data: TensorDict) -> TensorDict:
        """All mini-batches of one training step; the returned metrics are sums over all tokens of the step."""
        needs = self.support_loss.needs
        _leave_out(data)
        if SUPPORT_IDS in data or Needs.SUM_PI_SQUARED in needs:
            # Makes the engine call the loss as a logits processor (fsdp/transformer_impl.py:1412 and :1511).
            tu.assign_non_tensor(data, distillation_use_topk=True)
        radius = self.support_loss.metrics.radius
        self.support_loss.metrics = TokenMetrics(radius=radius)
        rows, mini_batch, epochs = data.shape[0], tu.get(data, "mini_batch_size"), tu.get(data, "epochs")
        refuse_impossible_batch(data, mini_batch, torch.distributed.get_rank(), torch.distributed.get_world_size())
        if Needs.RECOMPUTED_ANCHOR in needs:
            if rows * torch.distributed.get_world_size() == mini_batch and epochs == 1:
                raise ValueError(degenerate(self.support_loss.config.policy_loss.loss_mode))
            data[ANCHOR] = self._log_probs(data)
        routing = self._routing(data, mini_batch // torch.distributed.get_world_size())
        steps_before, overflowed_before = self.actor.engine.optimizer_steps, self.actor.engine.overflowed_steps
        output = self.actor.train_mini_batch(data=data)
        steps = self.actor.engine.optimizer_steps - steps_before
        expected = rows * torch.distributed.get_world_size() // mini_batch * epochs
        if steps != expected:
            raise RuntimeError(f"{steps} optimiser steps were taken in this update, {expected} mini-batches were due")
        metrics: dict[str, Any] = tu.get(output, "metrics")
        ours = {
            **self.support_loss.metrics.gather().summary(),
            **self.rollout.sampled,
            "updates/optimizer_steps": steps,
            **routing,
        }
        if self.actor.engine.scaler is not None:
            ours["updates/overflowed_steps"] = self.actor.engine.overflowed_steps - overflowed_before
        for name, value in ours.items():
            # One number per step: verl's reduction of a single value is the value, whatever the name contains.
            metrics[name] = [value]
        return output.cpu()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    async def serve(self, validate: bool) -> None:
        """Let a rollout server that holds one set of weights sample from the current ones, or from training's."""
        await self.rollout.serve(validate)

    def _log_probs(self, data: TensorDict) -> Tensor:
        """Log-probs of the sampled tokens under the present weights, jagged; by verl's pass for recomputed ones."""
        part = data.select("prompts", "responses", "response_mask", "loss_mask", "input_ids", "position_ids")
        settings = {"calculate_entropy": False, "compute_loss": False, "temperature": tu.get(data, "temperature")}
        out = self.compute_log_prob(with_settings(part, **settings))
        return response_from_nested(out["log_probs"], data["response_mask"])

    @torch.no_grad()
    def _routing(self, data: TensorDict, rows: int) -> dict[str, float]:
        """Routing differences before the update, at the tokens of the first mini-batch; nothing for dense models.

        Trainer and rollout run forward once more on that mini-batch alone, so that training is left as it is: 3 % of
        the CPU time of a toy step with 8 mini-batches (0.024 of 0.78 s, 2 layers, 8 experts).
        """
        if not hasattr(self.rollout, "sampling_model") or not routers(self.rollout.model):
            return {}
        part = next(mini_batches(data.select("input_ids", "responses"), rows))
        states = States.of(part)
        inputs = {name: getattr(states, name) for name in ("input_ids", "attention_mask", "position_ids")}
        with record_routing(self.actor.engine.module) as trainers:
            self.actor.engine.logits(**inputs)
        with record_routing(self.rollout.model) as rollouts:
            self.rollout.sampling_model()(**inputs, use_cache=False)
        chosen = [torch.stack(layers).unflatten(1, states.predicts.shape) for layers in (trainers, rollouts)]
        return {"routing/differences": differences(chosen[0], chosen[1], states.predicts)}

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def save_checkpoint(
        self, local_path: str, hdfs_path: str | None = None, global_step: int = 0, max_ckpt_to_keep: int | None = None
    ) -> None:
        """verl's checkpoint, and beside it the ring of past rollout weights."""
        super().save_checkpoint(local_path, hdfs_path, global_step, max_ckpt_to_keep)
        torch.save(self.rollout.ring.state_dict(), os.path.join(local_path, RING_FILE.format(rank=self.rank)))

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def load_checkpoint(
        self, local_path: str, hdfs_path: str | None = None, del_local_after_load: bool = False
    ) -> None:
        """Restore both. Raises FileNotFoundError when the checkpoint has no ring."""
        ring = torch.load(os.path.join(local_path, RING_FILE.format(rank=self.rank)), weights_only=True)
        super().load_checkpoint(local_path, hdfs_path, del_local_after_load)
        self.rollout.ring.load_state_dict(ring)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def report(self) -> Mapping[str, Any]:
        """What this worker really runs: names as seen here, not as requested."""
        settings = self.support_loss.config.policy_loss
        loss_fn = get_policy_loss_fn(settings.loss_mode)
        method = method_of(settings.loss_mode)
        return {
            "loss_mode": settings.loss_mode,
            "loss_function": f"{loss_fn.__module__}.{loss_fn.__qualname__}",
            "platform": f"{type(get_platform()).__module__}.{type(get_platform()).__qualname__}",
            "method": method.name,
            "options": vars(method.configure(getattr(settings, "options", None))),
            "engine": f"{type(self.actor.engine).__module__}.{type(self.actor.engine).__qualname__}",
            "dropout_off": self.actor.engine.dropout_off,
            "rollout": f"{type(self.rollout).__module__}.{type(self.rollout).__qualname__}",
            "rollout_dtype": str(self.rollout.dtype),
            "train_precision": self.actor.engine.precision(),
            "rollout_precision": self.rollout.precision(),
            "rollout_details": self.rollout.details(),
            "top_k": self.rollout.top_k,
            "staleness": self.rollout.ring.staleness,
            "threads": torch.get_num_threads(),
        }


def _leave_out(data: TensorDict) -> None:
    """Mask the responses that the trainer marked, in place; the batch keeps its shape, and verl its offsets."""
    if KEPT not in data:
        return
    keep = data[KEPT].values() > 0
    for name in ("response_mask", "loss_mask"):
        mask = data[name]
        data[name] = torch.nested.nested_tensor_from_jagged(mask.values() * keep.to(mask.dtype), mask.offsets())
