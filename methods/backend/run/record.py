"""What a training keeps of itself while it runs: metrics, checkpoints, token records, and lines of progress."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from methods.backend.run import folder as run_folder
from methods.backend.run import restart
from methods.backend.run_config import RunConfig

SHOWN = (("reward", "reward/mean"), ("accuracy", "val/accuracy"))


def record(trainer: Any, run: RunConfig, progress: Callable[[int, dict[str, float]], None]) -> None:
    """Let a trainer keep the run's metrics, exported checkpoints and restart points in the run's work directory."""
    from methods.backend.run.log import RunLog

    if run.setting.tokens is not None:
        record_tokens(trainer, run)

    def on_checkpoint(step: int, checkpoint: Path) -> None:
        run_folder.export(run, checkpoint, step)
        restart.seal(checkpoint)

    trainer.run_log = RunLog(run.work_dir, trainer.global_steps, progress)
    trainer.on_checkpoint = on_checkpoint


def record_tokens(trainer: Any, run: RunConfig) -> None:
    """Have the training worker record tokens around its optimiser steps, from the step the run (re)starts at."""
    from methods.backend.tokens import recorder

    assert run.setting.tokens is not None
    folder = run.work_dir / run_folder.TOKENS
    recorder.keep_until(folder, trainer.global_steps)
    identity = {"setting": run.setting_name, "variant": run.variant, "method": run.method, "seed": run.seed}
    identity |= {
        "update": run.setting.tokens.update,
        "top_k": run.setting.top_k,
        "staleness": run.setting.staleness,
        "lr": run.setting.lr,
    }
    tokens = recorder.TokenRecorder(trainer.worker, run.setting.tokens, folder, identity, lambda: trainer.global_steps)
    trainer.worker.actor.observe = tokens.observe
    trainer.on_step = tokens.flush


class Progress:
    """A line per tenth of a run: which run, step, reward, validation accuracy, time left of this run."""

    def __init__(self, run: RunConfig, first_step: int, terminal: TextIO) -> None:
        self.prefix = f"[train] {run.setting_name} {run.variant} seed {run.seed}"
        self.steps, self.first, self.start = run.setting.steps, first_step, time.perf_counter()
        self.every = max(1, run.setting.steps // 10)
        self.terminal = terminal

    def __call__(self, step: int, data: dict[str, float]) -> None:
        if step % self.every and step != self.steps:
            return
        spent = time.perf_counter() - self.start
        done = step - self.first
        left = f"{spent / done * (self.steps - step):.0f} s left of this run" if done else "starting"
        left = "" if step == self.steps else f"  {left}"
        shown = [f"{name} {data[key]:.3f}" for name, key in SHOWN if key in data]
        print(f"{self.prefix}: step {step}/{self.steps}  {'  '.join(shown)}{left}", file=self.terminal, flush=True)
