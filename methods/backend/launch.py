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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from methods.backend.compose import build_trainer
from methods.backend.ray.watch import RayLostError
from methods.backend.recipe import verl_overrides
from methods.backend.rollout.reward import RewardError
from methods.backend.run import folder as run_folder
from methods.backend.run import memory, restart, trackers, versions
from methods.backend.run.checks import check
from methods.backend.run.log import DivergedError
from methods.backend.run.record import Progress, record
from methods.backend.run_config import RunConfig
from methods.backend.setting import ConfigError
from methods.contract import MethodError
from methods.signals import ImpossibleSampleError


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


# Ends of a training that need one line and no traceback.
FAILED = (
    RayLostError,
    run_folder.DiskFullError,
    memory.OutOfMemoryError,
    DivergedError,
    MethodError,
    ImpossibleSampleError,
    RewardError,
)


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
    except FAILED as error:
        # verl's progress bar has left its line open.
        print(f"\nerror: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
