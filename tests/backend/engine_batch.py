"""One stale batch of a real training inside verl's engine, and the gradient of any registered loss on it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torch import Tensor
from verl.utils import tensordict_utils as tu

from methods import registry
from methods.backend import launch, needs
from methods.backend.batch_rollout import jagged
from methods.backend.policy_loss import TetherPolicyLossConfig, loss_name
from methods.backend.support_loss import SupportLoss
from methods.backend.worker import TetherWorker

VOCABULARY = 45
TENSORS = ("prompts", "responses", "response_mask", "loss_mask", "input_ids", "position_ids", "old_log_probs")


@dataclass
class EngineBatch:
    """32 responses of a lagged bfloat16 rollout, after 12 further optimiser steps; advantages are drawn.

    columns: as the engine gets them, every need's column included. lengths: [32] of the responses.
    """

    worker: TetherWorker
    columns: dict[str, Tensor]
    lengths: Tensor

    def loss(self, method: str, mode: str = "token-mean", **options: Any) -> SupportLoss:
        """What the worker would install for this method."""
        config = copy.copy(self.worker.support_loss.config)
        settings = TetherPolicyLossConfig(loss_mode=loss_name(method), options=options)
        for name, value in (("policy_loss", settings), ("loss_agg_mode", mode), ("global_batch_info", {})):
            object.__setattr__(config, name, value)
        return SupportLoss(config, VOCABULARY)

    def gradient(
        self,
        method: str,
        mode: str = "token-mean",
        micro_batch: int | None = 32,
        rows: list[int] | None = None,
        mask: Tensor | None = None,
        **options: Any,
    ) -> tuple[float, Tensor]:
        """(loss, gradient of all weights) of one mini-batch through the engine's own micro-batching.

        micro_batch: responses per forward, or None for verl's uneven ones by token count. rows: of the batch, in
        order. mask: [32, T], further positions to leave out (False) of the response mask.
        """
        columns = dict(self.columns)
        if mask is not None:
            columns |= {name: jagged(mask.long(), self.lengths) for name in ("response_mask", "loss_mask")}
        if rows is not None:
            columns = {name: _rows(column, rows) for name, column in columns.items()}
        size = len(rows) if rows is not None else len(self.lengths)
        data = TensorDict(columns, batch_size=[size])
        tu.assign_non_tensor(
            data,
            temperature=1.0,
            calculate_entropy=False,
            distillation_use_topk=True,
            global_batch_size=size,
            use_remove_padding=False,
            use_fused_kernels=False,
            use_dynamic_bsz=micro_batch is None,
            max_token_len_per_gpu=100,
            micro_batch_size_per_gpu=micro_batch or 0,
        )
        return self._backward(lambda: self._engine_loss(data, self.loss(method, mode, **options)))

    def differentiate(self, loss: Callable[[Tensor], Tensor]) -> tuple[float, Tensor]:
        """As `gradient`, of a plain function of the log-probs of the sampled tokens [32, T]; without verl's loss."""

        def run() -> float:
            value = loss(self._log_probs())
            value.backward()
            return value.item()

        return self._backward(run)

    def _engine_loss(self, data: TensorDict, loss: SupportLoss) -> float:
        return sum(self.worker.actor.engine.forward_backward_batch(data, loss)["loss"])

    def _backward(self, run: Callable[[], float]) -> tuple[float, Tensor]:
        engine = self.worker.actor.engine
        with engine.train_mode():
            engine.optimizer_zero_grad()
            value = run()
            parts = [p.grad for p in engine.module.parameters()]
            gradient = torch.cat([getattr(g, "full_tensor", lambda g=g: g)().flatten().clone() for g in parts])
            engine.optimizer_zero_grad()
        return value, gradient

    def _log_probs(self) -> Tensor:
        tokens = self.columns["input_ids"].to_padded_tensor(0)
        logits = self.worker.actor.engine.module(input_ids=tokens, use_cache=False).logits.float()
        logp = torch.log_softmax(logits[:, :-1], -1).gather(-1, tokens[:, 1:].unsqueeze(-1)).squeeze(-1)
        # All prompts are equally long, so every response starts in the same column.
        return logp[:, tokens.shape[1] - int(self.lengths.max()) - 1 :]


def _rows(column: Tensor, rows: list[int]) -> Tensor:
    parts = column.unbind()
    return torch.nested.as_nested_tensor([parts[i] for i in rows], layout=torch.jagged)


def build(world: Any, folder: Path) -> EngineBatch:
    """Train three steps, keep the last batch as it was before its updates, and give it every column."""
    from methods.backend.batch_rollout import BatchRolloutManager

    cell = world.cell(
        folder / "batch", method="pg_is", top_k=VOCABULARY, lr=4e-3, lag=2, mini_batches=4, temperature=1.0
    )
    kept: dict[str, Tensor] = {}
    update = TetherWorker.update_actor

    def spy(self: TetherWorker, data: TensorDict) -> TensorDict:
        kept.clear()
        kept.update({name: column for name, column in data.items() if isinstance(column, Tensor)})
        kept[needs.ANCHOR] = self._log_probs(data)
        return update(self, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TetherWorker, "update_actor", spy)
        trainer = launch.build_trainer(cell)
        trainer.fit(BatchRolloutManager(trainer.config, trainer.worker.rollout.generate))
    lengths = kept["responses"].offsets().diff()
    drawn = torch.randn(len(lengths), 1, generator=torch.Generator().manual_seed(0)).expand(-1, int(lengths.max()))
    kept["advantages"] = jagged(drawn, lengths)
    kept[needs.UNIFORMS] = jagged(needs.uniforms(0, 3, *drawn.shape), lengths)
    assert registry.names() and set(TENSORS) <= set(kept)
    return EngineBatch(trainer.worker, kept, lengths)
