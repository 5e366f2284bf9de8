"""agreement: the bare loop that `bench` measures against computes what the trainer computes.

Not covered: its sampling draws other tokens than the rollout does, from random numbers of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from verl.utils import tensordict_utils as tu

from methods.backend.compose import build_trainer
from methods.backend.rollout.batch import SUPPORT_IDS, SUPPORT_LOGP, BatchRolloutManager
from methods.backend.worker import TetherWorker
from workflows.tools.bench.bare_step import BareLoop, Rollouts


def rollouts_of(data: Any) -> Rollouts:
    """The worker's columns, padded; all prompts of this world are equally long."""
    columns = {name: column.to_padded_tensor(0) for name, column in data.items() if getattr(column, "is_nested", False)}
    return Rollouts(
        columns["prompts"],
        torch.ones_like(columns["prompts"]),
        columns["responses"],
        columns["response_mask"].bool(),
        columns["old_log_probs"],
        columns[SUPPORT_IDS],
        columns[SUPPORT_LOGP],
        columns["advantages"][:, 0],
    )


def test_the_losses_are_the_trainers(tiny_world: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """To 1e-5, over 3 steps of 4 mini-batches on the trainer's rollouts: so the gradients and AdamW agree as well."""
    run = tiny_world.run_config(tmp_path / "run", mini_batches=4)
    seen: list[tuple[Rollouts, list[float]]] = []
    update = TetherWorker.update_actor

    def spy(self: TetherWorker, data: Any) -> Any:
        rollouts = rollouts_of(data)
        output = update(self, data)
        seen.append((rollouts, tu.get(output, "metrics")["loss"]))
        return output

    monkeypatch.setattr(TetherWorker, "update_actor", spy)
    trainer = build_trainer(run)
    manager = BatchRolloutManager(trainer.config, trainer.worker.rollout.generate)
    trainer.fit(manager)
    bare = BareLoop(run, manager.tokenise, lambda rows, out: manager.score(rows, out)[0])
    losses = [(torch.tensor(bare.update(rollouts)), torch.tensor(expected)) for rollouts, expected in seen]
    assert len(losses) == 3 and all(len(ours) == 4 for ours, _ in losses)
    for ours, expected in losses:
        assert torch.allclose(ours, expected, rtol=1e-5, atol=1e-5)
    assert max(float(ours.abs().max()) for ours, _ in losses) > 1e-3
    # A whole step of its own, sampling included.
    assert len(bare.step([dict(trainer.train_dataset[i]) for i in range(8)], 1)) == 4
