"""One off-policy batch inside verl's engine, and the gradient of any registered loss on it."""

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

from methods.backend import requirements as needs
from methods.backend.compose import build_trainer
from methods.backend.loss import TetherPolicyLossConfig, loss_name
from methods.backend.rollout.batch import SUPPORT_IDS, SUPPORT_LOGP, to_jagged
from methods.backend.support_loss import SupportLoss
from methods.backend.worker import TetherWorker
from methods.registry import Needs

VOCABULARY, TOP_K, REPEATS = 45, 5, 2
# Flatter than the model learnt to be, so that the tail behind the top K weighs something.
TEMPERATURE = 2.5


@dataclass
class EngineBatch:
    """N = 64 sampled responses, with drawn rollout policies, anchors and advantages.

    columns: as the engine gets them, every need's column included. lengths: [N] of the responses.
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
        micro_batch: int | None = 64,
        rows: list[int] | None = None,
        mask: Tensor | None = None,
        **options: Any,
    ) -> tuple[float, Tensor]:
        """(loss, gradient of all weights) of one mini-batch through the engine's own micro-batching.

        micro_batch: responses per forward, or None for verl's uneven ones by token count. rows: of the batch, in
        order. mask: [N, T], further positions to leave out (False) of the response mask.
        """
        columns, loss = dict(self.columns), self.loss(method, mode, **options)
        if Needs.FULL not in loss.needs:
            # The likeliest few and, in the last slot, the sampled token: a tail is left.
            keep = [*range(TOP_K), VOCABULARY]
            columns |= {
                n: to_jagged(columns[n].to_padded_tensor(0)[..., keep], self.lengths)
                for n in (SUPPORT_IDS, SUPPORT_LOGP)
            }
        if mask is not None:
            columns |= {name: to_jagged(mask.long(), self.lengths) for name in ("response_mask", "loss_mask")}
        if rows is not None:
            columns = {name: _rows(column, rows) for name, column in columns.items()}
        size = len(rows) if rows is not None else len(self.lengths)
        data = TensorDict(columns, batch_size=[size])
        tu.assign_non_tensor(
            data,
            temperature=TEMPERATURE,
            calculate_entropy=False,
            distillation_use_topk=True,
            global_batch_size=size,
            use_remove_padding=False,
            use_fused_kernels=False,
            use_dynamic_bsz=micro_batch is None,
            max_token_len_per_gpu=100,
            micro_batch_size_per_gpu=micro_batch or 0,
        )
        return self._backward(lambda: self._engine_loss(data, loss))

    def differentiate(self, loss: Callable[[Tensor], Tensor]) -> tuple[float, Tensor]:
        """As `gradient`, of a plain function of the log-probs of the sampled tokens [N, T]; without verl's loss."""

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
        logits = self.worker.actor.engine.module(input_ids=tokens, use_cache=False).logits.float() / TEMPERATURE
        logp = torch.log_softmax(logits[:, :-1], -1).gather(-1, tokens[:, 1:].unsqueeze(-1)).squeeze(-1)
        # All prompts are equally long, so every response starts in the same column.
        return logp[:, tokens.shape[1] - int(self.lengths.max()) - 1 :]


def _rows(column: Tensor, rows: list[int]) -> Tensor:
    parts = column.unbind()
    return torch.nested.as_nested_tensor([parts[i] for i in rows], layout=torch.jagged)


def build(world: Any, folder: Path) -> EngineBatch:
    """Sample one batch in a training, then draw another mu, anchor and advantage for each of its rows."""
    from methods.backend.rollout.batch import BatchRolloutManager

    config = world.run_config(folder / "batch", method="pg_is", top_k=VOCABULARY, steps=1, staleness=0)
    kept: dict[str, Tensor] = {}
    update = TetherWorker.update_actor

    def spy(self: TetherWorker, data: TensorDict) -> TensorDict:
        kept.update({name: column for name, column in data.items() if isinstance(column, Tensor)})
        return update(self, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TetherWorker, "update_actor", spy)
        trainer = build_trainer(config)
        trainer.fit(BatchRolloutManager(trainer.config, trainer.worker.rollout.generate))
    columns = {name: _rows(column, [*range(len(column))] * REPEATS) for name, column in kept.items()}
    return EngineBatch(trainer.worker, columns | _drawn(trainer.worker, columns), columns["responses"].offsets().diff())


def _drawn(worker: TetherWorker, columns: dict[str, Tensor]) -> dict[str, Tensor]:
    """Policies around pi, some near and some far, so that every mask has tokens on both sides of its edge."""
    random = torch.Generator().manual_seed(0)
    tokens, lengths = columns["input_ids"].to_padded_tensor(0), columns["responses"].offsets().diff()
    places = torch.arange(tokens.shape[1]).expand(tokens.shape)
    logits = worker.actor.engine.logits(tokens, torch.ones_like(tokens), places)
    start = tokens.shape[1] - int(lengths.max())
    logits, sampled = logits[:, start - 1 : -1] / TEMPERATURE, tokens[:, start:].unsqueeze(-1)
    # A quarter of the responses stays near as a whole, which is what sequence masks keep.
    spread = torch.rand(len(tokens), 1, 1, generator=random)
    near = spread < 0.25
    spread = torch.where(near, 0.02 * spread, spread)
    scale = 3 * spread * torch.rand(*sampled.shape, generator=random)
    boost = 4.0 * (torch.rand(*sampled.shape, generator=random) < 0.1) * ~near
    noise = scale * torch.randn(logits.shape, generator=random)
    # Some tokens that were likely under mu and no longer are.
    noise = noise.scatter_add(-1, sampled, boost)
    mu, old = (torch.log_softmax(logits + share * noise, -1) for share in (1.0, 0.4))
    logp, ids = mu.topk(VOCABULARY, dim=-1)
    values = {
        "old_log_probs": mu.gather(-1, sampled).squeeze(-1),
        needs.ANCHOR: old.gather(-1, sampled).squeeze(-1),
        SUPPORT_IDS: torch.cat([ids, sampled], -1),
        SUPPORT_LOGP: torch.cat([logp, mu.gather(-1, sampled)], -1),
        "advantages": torch.randn(len(tokens), 1, generator=random).expand(-1, sampled.shape[1]),
        needs.UNIFORMS: torch.rand(sampled.shape[:2], generator=random),
    }
    return {name: to_jagged(value, lengths) for name, value in values.items()}
