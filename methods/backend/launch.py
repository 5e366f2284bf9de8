"""Train one run with verl's own trainer, here or on Ray, and publish its results only when they are complete.

python -m methods.backend.launch RUN.json [--print-overrides]
"""

from __future__ import annotations

from methods.backend import environment  # isort: skip  # before anything imports torch

import argparse
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from methods import registry
from methods.backend.precisions import ROLLOUT_PRECISIONS, TRAIN_PRECISIONS
from methods.backend.ray.watch import RayLostError
from methods.backend.recipe import verl_overrides
from methods.backend.rollout.engines import ENGINES, SERVERS, refuse_corrections
from methods.backend.run import folder as run_folder
from methods.backend.run import memory, restart, trackers, versions
from methods.backend.run.checks import check
from methods.backend.run.log import DivergedError
from methods.backend.run_config import RunConfig
from methods.backend.setting import ConfigError
from methods.contract import MethodError
from methods.signals import ImpossibleSampleError


def compose(run: RunConfig) -> Any:
    """verl's `ppo_trainer` configuration with this run's overrides, resolved and validated by verl."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_module
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    with initialize_config_module("verl.trainer.config", version_base=None):
        config = hydra_compose("ppo_trainer", overrides=verl_overrides(run))
    config.transfer_queue.enable = True
    try:
        refuse_corrections(config.algorithm.rollout_correction)
    except ValueError as error:
        raise ConfigError(f"overrides: {error}") from None
    validate_config(config=config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
    return config


def build_trainer(run: RunConfig) -> Any:
    """verl's trainer with our worker, initialised (checkpoint loaded where there is one) and verified to be ours."""
    import verl  # noqa: F401  # loads the plugin through its entry point
    from omegaconf import OmegaConf

    from methods.backend import plugin, trainer  # noqa: F401  # registration raises here, where verl would hide it

    config = compose(run)
    OmegaConf.resolve(config)
    built = trainer.InProcessTrainer(config=config)
    built.init()
    verify(run, built.worker.report())
    return built


def verify(run: RunConfig, report: dict[str, Any]) -> None:
    """Raise RuntimeError where the worker does not run what the run asks for (verl hides plugin failures)."""
    from methods.backend import engine, platform
    from methods.backend import loss as policy_loss

    sampler = (SERVERS if run.setting.server else ENGINES)[run.setting.rollout_engine][1]
    expected = {
        "platform": f"{platform.CPUPlatform.__module__}.{platform.CPUPlatform.__qualname__}",
        "method": run.method,
        "loss_function": f"{policy_loss.__name__}.{run.method}_policy_loss",
        "options": vars(registry.get(run.method).configure(run.options)),
        "engine": f"{engine.CPUEngine.__module__}.{engine.CPUEngine.__qualname__}",
        "rollout": sampler,
        "staleness": run.setting.staleness,
        "top_k": run.setting.top_k,
        "train_precision": asdict(TRAIN_PRECISIONS[run.setting.train_precision]),
        "rollout_precision": asdict(ROLLOUT_PRECISIONS[run.setting.rollout_precision]),
    }
    wrong = [f"{k}: asked {v!r}, runs {report.get(k)!r}" for k, v in expected.items() if report.get(k) != v]
    if wrong:
        raise RuntimeError("the worker does not run what was asked for: " + "; ".join(wrong))


def train(run: RunConfig) -> None:
    """Train a run to its last step and publish `output`.

    An interrupted run resumes from its last restart point; a finished one, kept in the work directory, is published
    again; one of fewer steps is gone on with.
    """
    _refuse_other_platforms()
    dropped = check(run)
    for name, count in dropped.items():
        print(f"[train] {name}: {count} rows with a prompt above {run.setting.prompt_length} tokens are dropped")
    with run_folder.hold_work(run):
        if run.setting.runner == "ray":
            _remove_orphans()
        run_folder.prepare_work(run)
        report = run_folder.finished(run)
        if report is not None:
            print(f"[train] trained already: taken from {run.work_dir}", flush=True)
        resumed = restart.prepare(run.work_dir / "verl")
        if resumed and report is None:
            print(f"[train] goes on after step {resumed}", flush=True)
        with run_folder.name_full_disk(run), memory.shortage_told(run.setting.runner):
            if report is None:
                trackers.keep_until(run.work_dir, resumed)
                with trackers.write_to(run.work_dir / "trackers", run.trackers):
                    report = _train_on_ray(run) if run.setting.runner == "ray" else _train_in_process(run)
                report |= {"dropped_rows": dropped} if dropped else {}
                run_folder.keep(run, report)
            run_folder.publish(run, report)


def _refuse_other_platforms() -> None:
    chosen, only = os.environ.get("VERL_PLATFORM"), environment.DEFAULTS["VERL_PLATFORM"]
    if chosen != only:
        raise ConfigError(f"VERL_PLATFORM = {chosen!r}: allowed is {only}, the device that this release trains on")


def _remove_orphans() -> None:
    from methods.backend.ray import launch as ray_launch

    ray_launch.remove_orphans()


def _train_on_ray(run: RunConfig) -> dict[str, Any]:
    from methods.backend.ray import launch as ray_launch

    return ray_launch.train(run)


def _train_in_process(run: RunConfig) -> dict[str, Any]:
    """Run the trainer in this process; returns what the worker reports about itself."""
    from methods.backend.rollout.batch import BatchRolloutManager

    # verl prints whole dictionaries; they go to the log with the rest, the progress line to the terminal.
    terminal = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        trainer = build_trainer(run)
        report = trainer.worker.report()
        record(trainer, run, Progress(run, trainer.global_steps, terminal))
        try:
            trainer.fit(BatchRolloutManager(trainer.config, trainer.worker.rollout.generate))
        finally:
            if getattr(trainer, "logger", None) is not None:
                trainer.logger.finish()
    return report


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


# Ends of a training that need one line and no traceback.
FAILED = (
    RayLostError,
    run_folder.DiskFullError,
    memory.OutOfMemoryError,
    DivergedError,
    MethodError,
    ImpossibleSampleError,
)
SHOWN = (("reward", "reward/mean"), ("accuracy", "val/accuracy"))


def _train_until_stopped(run: RunConfig) -> int:
    """Exit status: 0, or that of a process ended by Ctrl-C or SIGTERM after one line on what comes next."""
    try:
        with _stopped_by_terminate():
            train(run)
    except KeyboardInterrupt as stop:
        done = restart.newest(run.work_dir / "verl")
        comes = f"goes on after step {done}" if done else "starts anew, since it had no restart point yet"
        print(f"\n[train] stopped; the same command {comes}", flush=True)
        return 128 + (stop.args[0] if stop.args else signal.SIGINT)
    return 0


@contextlib.contextmanager
def _stopped_by_terminate() -> Iterator[None]:
    """Within, SIGTERM ends a training as Ctrl-C does: what it has started is ended too."""

    def stop(number: int, _: Any) -> None:
        raise KeyboardInterrupt(number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m methods.backend.launch", description=__doc__)
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("run", type=Path, nargs="?", help="JSON file of one run")
    given.add_argument("--json", help="the run itself, as JSON")
    parser.add_argument("--print-overrides", action="store_true", help="print verl's Hydra overrides and stop")
    args = parser.parse_args(arguments)
    for problem in versions.outside_tested_range():
        print(f"warning: {problem}", file=sys.stderr)
    try:
        run = RunConfig.load(args.run) if args.run else RunConfig.parse(args.json, "--json")
        if args.print_overrides:
            print("\n".join(verl_overrides(run)))
            return 0
        return _train_until_stopped(run)
    except (ConfigError, restart.RestartError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except (
        RayLostError,
        run_folder.DiskFullError,
        memory.OutOfMemoryError,
        DivergedError,
        MethodError,
        ImpossibleSampleError,
    ) as error:
        # verl's progress bar has left its line open.
        print(f"\nerror: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
