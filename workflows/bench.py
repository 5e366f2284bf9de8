"""A training step of verl's trainer against a minimal loop over the same worker and engine, alternating in one process.

Both sides sample, score, compute advantages and update with the same TetherWorker; the minimal loop has no queue,
no replay buffer, no validation, no metrics of verl's driver. What the ratio shows is the price of the trainer.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

SIZES = {"prompts": 64, "group": 8, "mini_batches": 8, "lag": 2, "prompt_length": 8, "response_length": 7}


def measure(steps: int) -> int:
    """Print seconds per step of both sides and their ratio (median of paired ratios)."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        make_world(root, steps)
        with contextlib.redirect_stdout(sys.stderr):
            ours, minimal, stages = _alternate(root, steps)
    ratios = [a / b for a, b in zip(ours, minimal, strict=True)]
    for name, values in (("verl trainer, in process", ours), ("minimal loop, same worker", minimal)):
        print(f"{name:28s} {statistics.median(values):.3f} s a step")
    spread = f"min {min(ratios):.2f}, max {max(ratios):.2f}, n {len(ratios)}"
    print(f"{'ratio':28s} {statistics.median(ratios):.2f}  ({spread})")
    print(json.dumps({name: round(statistics.median(values), 3) for name, values in stages.items()}))
    return 0


def make_world(root: Path, steps: int) -> None:
    """The toy world with prompts for so many steps, and a model of the toy's size with random weights."""
    from workflows.world import build, warm_start
    from workflows.world.sorting import SortingWorld

    world = SortingWorld(numbers=6, limit=200, train_prompts=64 * (steps + 2), test_prompts=8, seed=0)
    build.write(world, root / "world")
    model = warm_start.make_model(world, warm_start.ModelSize(hidden=64, layers=2, heads=2), seed=0)
    model.save_pretrained(root / "model")
    warm_start.AutoTokenizer.from_pretrained(root / "world" / "tokenizer").save_pretrained(root / "model")


def make_cell(root: Path, steps: int, **panel: Any) -> Any:
    """A cell on that world; `panel` adds to its settings."""
    from methods.backend.cell import Cell

    return Cell.build(
        {
            "label": "bench",
            "method": "dppo_topk_kl",
            "seed": 0,
            "panel": {**SIZES, "lr": 2e-4, "steps": steps + 2, **panel},
            "model": str(root / "model"),
            "train_files": [str(root / "world" / "train.parquet")],
            "val_files": [str(root / "world" / "test.parquet")],
            "reward_function": {"path": "workflows/world/reward.py"},
            "output": str(root / "run"),
            "overrides": ["trainer.val_before_train=False", "trainer.test_freq=-1", "trainer.save_freq=-1"],
        }
    )


def _alternate(root: Path, steps: int) -> tuple[list[float], list[float], dict[str, list[float]]]:
    from methods.backend.batch_rollout import BatchRolloutManager
    from methods.backend.launch import build_trainer

    trainer = build_trainer(make_cell(root, steps))
    manager = BatchRolloutManager(trainer.config, trainer.worker.rollout.generate)
    own: list[float] = []
    others: list[float] = []
    stages: dict[str, list[float]] = {}
    rows = _prompt_rows(trainer)

    inner = trainer._compute_metrics

    def after_step(*args: Any, **kwargs: Any) -> None:
        inner(*args, **kwargs)
        timings = kwargs.get("timing_raw", args[2] if len(args) > 2 else {})
        own.append(time.perf_counter() - clock[0])
        for name, value in timings.items():
            stages.setdefault(name, []).append(value)
        others.append(_minimal_step(trainer, manager, rows, len(own)))
        clock[0] = time.perf_counter()

    clock = [time.perf_counter()]
    trainer._compute_metrics = after_step
    trainer.fit(manager)
    # The first step of each side pays for lazy initialisation.
    return own[1:], others[1:], stages


def _prompt_rows(trainer: Any) -> list[dict[str, Any]]:
    return [dict(trainer.train_dataset[i]) for i in range(SIZES["prompts"])]


def _minimal_step(trainer: Any, manager: Any, rows: list[dict[str, Any]], step: int) -> float:
    """Sample, score, centre, update, sync: what any loop must do, with nothing around it."""
    from tensordict import TensorDict

    from methods.backend.batch_rollout import columns, jagged
    from methods.backend.mini_batches import with_settings
    from methods.backend.trainer import ENGINE_COLUMNS

    start = time.perf_counter()
    group, worker = SIZES["group"], trainer.worker
    repeated = [row for row in rows for _ in range(group)]
    prompts = [ids for row in rows for ids in [manager.tokenise(row)] * group]
    out = worker.rollout.generate(prompts, step, False, 1.0)
    scores, _ = manager.score(repeated, out)
    rewards = torch.tensor(scores).view(-1, group)
    advantages = (rewards - rewards.mean(1, keepdim=True)).flatten()
    fields = columns(prompts, out, scores)
    fields["old_log_probs"] = fields["rollout_log_probs"]
    fields["advantages"] = jagged(advantages.unsqueeze(1).expand(out.tokens.shape).contiguous(), out.lengths)
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
    trainer.actor_rollout_wg.update_weights(trainer.global_steps)
    return time.perf_counter() - start
