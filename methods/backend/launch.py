"""Train one cell with verl's own trainer, here or on Ray, and publish its results only when they are complete.

python -m methods.backend.launch CELL.json [--print-overrides]
"""

from __future__ import annotations

from methods.backend import environment  # noqa: F401  # isort: skip  # before anything imports torch

import argparse
import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from methods.backend import versions
from methods.backend.preflight import check
from methods.backend.recipe import Cell, CellError, verl_overrides


def compose(cell: Cell) -> Any:
    """verl's `ppo_trainer` configuration with this cell's overrides, resolved and validated by verl."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_module
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    with initialize_config_module("verl.trainer.config", version_base=None):
        config = hydra_compose("ppo_trainer", overrides=verl_overrides(cell))
    config.transfer_queue.enable = True
    validate_config(config=config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
    return config


def build_trainer(cell: Cell) -> Any:
    """verl's trainer with our worker, initialised (checkpoint loaded where there is one) and verified to be ours."""
    import verl  # noqa: F401  # loads the plugin through its entry point
    from omegaconf import OmegaConf

    from methods.backend import plugin, trainer  # noqa: F401  # registration raises here, where verl would hide it

    config = compose(cell)
    OmegaConf.resolve(config)
    built = trainer.InProcessTrainer(config=config)
    built.init()
    verify(cell, built.worker.report())
    return built


def verify(cell: Cell, report: dict[str, Any]) -> None:
    """Raise RuntimeError where the worker does not run what the cell asks for (verl hides plugin failures)."""
    from methods.backend import engine, platform, rollout

    sampler = f"{rollout.HFRollout.__module__}.{rollout.HFRollout.__qualname__}"
    if cell.panel.server:
        sampler = "methods.backend.rollout_server.ServerRollout"
    expected = {
        "platform": f"{platform.CPUPlatform.__module__}.{platform.CPUPlatform.__qualname__}",
        "method": cell.method,
        "loss_is_ours": True,
        "engine": f"{engine.CPUEngine.__module__}.{engine.CPUEngine.__qualname__}",
        "rollout": sampler,
        "lag": cell.panel.lag,
        "top_k": cell.panel.top_k,
    }
    wrong = [f"{k}: asked {v!r}, runs {report.get(k)!r}" for k, v in expected.items() if report.get(k) != v]
    if wrong:
        raise RuntimeError("the worker does not run what was asked for: " + "; ".join(wrong))


def train(cell: Cell) -> None:
    """Train a cell to its last step and publish `output`. An interrupted run resumes from its last checkpoint."""
    check(cell)
    prepare_work(cell)
    if cell.panel.runner == "ray":
        from methods.backend import ray_launch

        report = ray_launch.train(cell)
    else:
        report = train_in_process(cell)
    publish(cell, report)


def train_in_process(cell: Cell) -> dict[str, Any]:
    """Run the trainer in this process; returns what the worker reports about itself."""
    from methods.backend.batch_rollout import BatchRolloutManager

    with contextlib.redirect_stdout(sys.stderr):
        trainer = build_trainer(cell)
    report = trainer.worker.report()
    record(trainer, cell, Progress(cell, trainer.global_steps))
    try:
        # verl prints whole dictionaries; they go to the log with the rest, the progress line to the terminal.
        with contextlib.redirect_stdout(sys.stderr):
            trainer.fit(BatchRolloutManager(trainer.config, trainer.worker.rollout.generate))
    finally:
        if getattr(trainer, "logger", None) is not None:
            trainer.logger.finish()
    return report


def record(trainer: Any, cell: Cell, progress: Callable[[int, dict[str, float]], None]) -> None:
    """Let a trainer keep the run's metrics and its exported checkpoints in the cell's work directory."""
    from methods.backend.run_log import RunLog

    trainer.run_log = RunLog(cell.work_dir, trainer.global_steps, progress)
    trainer.on_checkpoint = lambda step, folder: export(cell, step, folder / f"global_step_{step}")


class Progress:
    """One line per step: which cell, step, reward, validation accuracy, time left."""

    def __init__(self, cell: Cell, first_step: int) -> None:
        index, of = position(cell)
        self.prefix = f"[train {index}/{of}] {cell.panel_name} {cell.label} seed {cell.seed}"
        self.steps, self.first, self.start = cell.panel.steps, first_step, time.perf_counter()
        self.every = max(1, cell.panel.steps // 10)
        self.terminal = sys.stdout

    def __call__(self, step: int, data: dict[str, float]) -> None:
        if step % self.every and step != self.steps:
            return
        spent = time.perf_counter() - self.start
        done = step - self.first
        left = f"{spent / done * (self.steps - step):.0f} s left" if done else "starting"
        shown = [f"{name} {data[key]:.3f}" for name, key in SHOWN if key in data]
        print(f"{self.prefix}: step {step}/{self.steps}  {'  '.join(shown)}  {left}", file=self.terminal, flush=True)


SHOWN = (("reward", "reward/mean"), ("accuracy", "val/accuracy"))


def prepare_work(cell: Cell) -> None:
    """Set up the work directory; one of another configuration is moved aside, never resumed from."""
    work = cell.work_dir
    settings = {k: v for k, v in cell.dump().items() if k not in ("output", "work")}
    record = work / "cell.json"
    if record.exists() and json.loads(record.read_text()) != json.loads(json.dumps(settings)):
        aside = work.with_name(work.name + ".superseded")
        shutil.rmtree(aside, ignore_errors=True)
        work.rename(aside)
        print(f"[train] settings changed since the interrupted run; its files are in {aside}", flush=True)
    work.mkdir(parents=True, exist_ok=True)
    write_json(record, settings)


def export(cell: Cell, step: int, checkpoint: Path) -> None:
    """Keep the Hugging Face part of a checkpoint that is to be scored."""
    if step != cell.panel.steps and not (cell.panel.export_every and step % cell.panel.export_every == 0):
        return
    target = cell.work_dir / "checkpoints" / f"step_{step}"
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(checkpoint / "actor" / "huggingface", partial)
    # verl writes float32 tensors beside a config that says bfloat16; readers would round the weights.
    config = json.loads((partial / "config.json").read_text())
    config.pop("torch_dtype", None)
    write_json(partial / "config.json", {**config, "dtype": "float32"})
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)


def publish(cell: Cell, report: dict[str, Any]) -> None:
    """Move the finished run's files to `output`; the manifest comes last, so its presence means completeness."""
    output = Path(cell.output)
    output.mkdir(parents=True, exist_ok=True)
    manifest = {
        "cell": {k: v for k, v in cell.dump().items() if k not in ("output", "work")},
        "panel": cell.dump()["panel"],
        "worker": report,
        "verl_overrides": verl_overrides(cell),
        "versions": versions.installed(),
    }
    shutil.rmtree(output / "checkpoints", ignore_errors=True)
    (cell.work_dir / "checkpoints").rename(output / "checkpoints")
    for name in ("metrics.jsonl", "timing.jsonl"):
        (cell.work_dir / name).replace(output / name)
    write_json(output / "manifest.json", manifest)
    shutil.rmtree(cell.work_dir)


def write_json(path: Path, value: Any) -> None:
    """Atomically, with sorted keys."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(value, indent=1, sort_keys=True) + "\n")
    temporary.replace(path)


def position(cell: Cell) -> tuple[int, int]:
    """(i, n) of this cell in the grid, for the progress line: from TETHER_CELLS, a JSON list a pipeline may set."""
    cells = json.loads(os.environ.get("TETHER_CELLS", "[]"))
    own = [i for i, name in enumerate(cells, start=1) if Path(cell.output).as_posix().endswith(name)]
    return (own[0], len(cells)) if own else (1, 1)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m methods.backend.launch", description=__doc__)
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("cell", type=Path, nargs="?", help="JSON file of one cell")
    given.add_argument("--json", help="the cell itself, as JSON")
    parser.add_argument("--print-overrides", action="store_true", help="print verl's Hydra overrides and stop")
    args = parser.parse_args(arguments)
    for problem in versions.outside_tested_range():
        print(f"warning: {problem}", file=sys.stderr)
    try:
        cell = Cell.load(args.cell) if args.cell else Cell.parse(args.json, "--json")
        if args.print_overrides:
            print("\n".join(verl_overrides(cell)))
            return 0
        train(cell)
    except CellError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
