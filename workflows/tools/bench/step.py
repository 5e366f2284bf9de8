"""A training step three ways, taking turns in one process: verl's trainer, a minimal loop, and bare PyTorch.

The minimal loop samples, scores, centres and updates with the trainer's own worker and engine, without queue, replay
buffer, validation or metrics of verl's driver; the bare loop (`bare_step`) has no engine either. CPU seconds, so that a
busy machine slows all alike; what the ratios show is the price of what stands around a step.
"""

from __future__ import annotations

import contextlib
import functools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from methods.backend.run_config import RunConfig
from workflows.tools.toy import make_toy, toy_run

LR = 2e-4
SIZES = {"prompts": 64, "group": 8, "mini_batches": 8, "staleness": 2, "prompt_length": 8, "response_length": 7}
DEFAULT: dict[str, Any] = {"hidden": 64, "layers": 2, "heads": 2}
LARGER: dict[str, Any] = {"hidden": 128, "layers": 4, "heads": 4}
SIDES = ("bare PyTorch loop", "minimal loop, same worker", "verl's trainer, in process")


class Stages:
    """CPU seconds by stage, without those of the stages inside."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inside: list[float] = []

    def time(self, owner: Any, name: str, stage: str) -> None:
        """Have a method of an object counted as a stage."""
        inner: Callable[..., Any] = getattr(owner, name)

        @functools.wraps(inner)
        def timed(*args: Any, **kwargs: Any) -> Any:
            self._inside.append(0.0)
            start = time.process_time()
            try:
                return inner(*args, **kwargs)
            finally:
                spent = time.process_time() - start
                self.seconds[stage] = self.seconds.get(stage, 0.0) + spent - self._inside.pop()
                if self._inside:
                    self._inside[-1] += spent

        setattr(owner, name, timed)

    def take(self, whole: float) -> dict[str, float]:
        """The stages of a step of so many seconds, and the rest; then begin anew."""
        taken, self.seconds = self.seconds, {}
        return {**taken, "rest": whole - sum(taken.values()), "whole step": whole}


def measure(steps: int, larger: bool = False) -> int:
    """Print CPU milliseconds a step by stage, and the ratios to the bare loop: median of paired steps, and extremes."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        make_world(root, steps, larger)
        with contextlib.redirect_stdout(sys.stderr):
            spent = _alternate(root, steps)
    size = LARGER if larger else DEFAULT
    print(f"{size['layers']} layers, width {size['hidden']}; CPU ms, median of {len(spent[SIDES[0]])} steps\n")
    print("| stage | " + " | ".join(SIDES) + " |\n|" + "---|" * (len(SIDES) + 1))
    for stage in dict.fromkeys(name for side in reversed(SIDES) for step in spent[side] for name in step):
        shown = [1000 * statistics.median(step.get(stage, 0.0) for step in spent[side]) for side in SIDES]
        print(f"| {stage} | " + " | ".join(f"{value:.0f}" if value else "" for value in shown) + " |")
    ratios = []
    for side in SIDES:
        paired = [a["whole step"] / b["whole step"] for a, b in zip(spent[side], spent[SIDES[0]], strict=True)]
        ratios.append(f"{statistics.median(paired):.2f} ({min(paired):.2f} to {max(paired):.2f})")
    print("| ratio to bare PyTorch | " + " | ".join(ratios) + " |")
    return 0


def make_world(root: Path, steps: int, larger: bool = False) -> None:
    """The toy world with prompts for so many steps, and a model with random weights: the toy's size or the next."""
    from workflows.world.sorting import SortingWorld
    from workflows.world.warm_start import ModelSize

    world = SortingWorld(numbers=6, limit=200, train_prompts=64 * (steps + 2), test_prompts=8, seed=0)
    make_toy(root, world, ModelSize(**(LARGER if larger else DEFAULT)))


def make_run(root: Path, steps: int, **setting: Any) -> RunConfig:
    """A run on that world; `setting` adds to its settings."""
    overrides = ["trainer.val_before_train=False", "trainer.test_freq=-1", "trainer.save_freq=-1"]
    return toy_run(root, "run", {**SIZES, "lr": LR, "steps": steps + 2, **setting}, overrides=overrides)


def _alternate(root: Path, steps: int) -> dict[str, list[dict[str, float]]]:
    """{side: stages of each step}; the first step of each side, which pays for lazy initialisation, is left out."""
    from methods.backend.compose import build_trainer
    from methods.backend.rollout.batch import BatchRolloutManager
    from workflows.tools.bench.bare_step import BareLoop

    run = make_run(root, steps)
    trainer = build_trainer(run)
    manager = BatchRolloutManager(trainer.config, trainer.worker.rollout.generate)
    # A model without training earns nothing: pay for something else, so that there are gradients.
    manager.reward_fn = lambda solution_str, **_: float(len(solution_str) % 2)
    bare = BareLoop(run, manager.tokenise, lambda rows, out: manager.score(rows, out)[0])
    rows = _prompt_rows(trainer)
    spent: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    stages, clock = Stages(), [0.0]
    for owner, name, stage in (
        (manager, "generate", "sample"),
        (bare, "sample", "sample"),
        (manager, "score", "score"),
        (trainer.worker, "update_actor", "update"),
        (bare, "update", "update"),
        (trainer.checkpoint_manager, "update_weights", "weights to the rollout"),
        (bare, "keep_weights", "weights to the rollout"),
        (manager, "generate_sequences", "prompts, columns, queue"),
        (trainer, "_compute_advantage", "advantages"),
        (trainer, "_compute_metrics", "metrics"),
    ):
        stages.time(owner, name, stage)
    inner = trainer._compute_metrics

    def turn(side: str, run: Callable[[], Any]) -> None:
        start = time.process_time()
        run()
        spent[side].append(stages.take(time.process_time() - start))

    def after_step(*args: Any, **kwargs: Any) -> None:
        inner(*args, **kwargs)
        spent[SIDES[2]].append(stages.take(time.process_time() - clock[0]))
        turn(SIDES[1], lambda: _minimal_step(trainer, manager, rows, trainer.global_steps))
        turn(SIDES[0], lambda: bare.step(rows, trainer.global_steps))
        clock[0] = time.process_time()

    trainer._compute_metrics = after_step
    clock[0] = time.process_time()
    trainer.fit(manager)
    return {side: values[1:] for side, values in spent.items()}


def _prompt_rows(trainer: Any) -> list[dict[str, Any]]:
    return [dict(trainer.train_dataset[i]) for i in range(SIZES["prompts"])]


def _minimal_step(trainer: Any, manager: Any, rows: list[dict[str, Any]], step: int) -> None:
    """Sample, score, centre, update, sync: what any loop must do, with nothing around it."""
    from tensordict import TensorDict

    from methods.backend.mini_batches import with_settings
    from methods.backend.rollout.batch import columns, to_jagged
    from methods.backend.trainer import ENGINE_COLUMNS

    group, worker = SIZES["group"], trainer.worker
    repeated = [row for row in rows for _ in range(group)]
    prompts = [ids for row in rows for ids in [manager.tokenise(row)] * group]
    out = manager.generate(prompts, step, False, 1.0)
    scores, _ = manager.score(repeated, out)
    rewards = torch.tensor(scores).view(-1, group)
    advantages = (rewards - rewards.mean(1, keepdim=True)).flatten()
    fields = columns(prompts, out, scores)
    fields["old_log_probs"] = fields["rollout_log_probs"]
    fields["advantages"] = to_jagged(advantages.unsqueeze(1).expand(out.tokens.shape).contiguous(), out.lengths)
    data = TensorDict({k: v for k, v in fields.items() if k in ENGINE_COLUMNS}, batch_size=[len(prompts)])
    mini_batch = SIZES["prompts"] // SIZES["mini_batches"] * group
    with_settings(
        data,
        global_batch_size=mini_batch,
        mini_batch_size=mini_batch,
        epochs=1,
        seed=0,
        dataloader_kwargs={"shuffle": False},
        temperature=1.0,
        calculate_entropy=False,
    )
    worker.update_actor(data)
    trainer.checkpoint_manager.update_weights(trainer.global_steps)
