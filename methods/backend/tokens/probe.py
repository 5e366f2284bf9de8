"""A real optimiser step that leaves no trace: taken with another loss, looked at, and undone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tensordict import TensorDict
from verl.utils import tensordict_utils as tu

from methods.backend.loss import TetherPolicyLossConfig, loss_name
from methods.backend.metrics import TokenMetrics
from methods.backend.tokens.snapshot import Snapshot


@contextmanager
def take_probe_step(worker: Any, part: TensorDict, method: str, options: dict[str, Any]) -> Iterator[None]:
    """Inside the block the actor stands one step of `method` on this mini-batch further; afterwards as before.

    The step is the worker's own, through verl's engine, loss, clipping and optimiser. Parameters, gradients, optimiser,
    schedule, loss scale, random state, step counts and metrics are put back bit for bit.
    """
    engine, loss = worker.actor.engine, worker.support_loss
    snapshot = Snapshot.capture(engine)
    counts = engine.optimizer_steps, engine.overflowed_steps
    hooks = engine.before_optimizer_step, engine.after_optimizer_step
    own_config, own_metrics = loss.config, loss.metrics
    engine.before_optimizer_step, engine.after_optimizer_step = [], []
    loss.metrics = TokenMetrics(radius=own_metrics.radius)
    policy_loss = TetherPolicyLossConfig(
        **{**_fields(own_config.policy_loss), "loss_mode": loss_name(method), "options": options}
    )
    loss.config = replace(own_config, policy_loss=policy_loss)
    try:
        probe = part.clone(recurse=False)
        tu.assign_non_tensor(probe, update_lr_scheduler=False)
        worker.actor.train_batch(probe)
        yield
    finally:
        loss.config, loss.metrics = own_config, own_metrics
        engine.before_optimizer_step, engine.after_optimizer_step = hooks
        engine.optimizer_steps, engine.overflowed_steps = counts
        snapshot.restore(engine)


def _fields(config: Any) -> dict[str, Any]:
    """A dataclass's values without copies."""
    return {name: getattr(config, name) for name in config.__dataclass_fields__ if not name.startswith("_")}
