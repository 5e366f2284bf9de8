"""Run one run through `verl.trainer.main_ppo` on a Ray of its own, and leave nothing of it behind."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import psutil

from methods.backend.compose import compose
from methods.backend.ray.watch import RayLostError, end, runs, watch_processes
from methods.backend.run import memory
from methods.backend.run.log import DivergedError
from methods.backend.run.record import Progress
from methods.backend.run_config import RunConfig
from methods.backend.setting import ConfigError

PLUGINS = ("methods.backend.plugin", "methods.backend.ray.trainer")
FOLDER = "tether-ray-"
# Sockets lie below Ray's folder; a Unix socket's path has at most 107 characters, about 65 of them Ray's, 30 ours.
LONGEST_ROOT = 10
# In the environment of all processes of a run's Ray: which folder they belong to.
MARK = "TETHER_RAY_FOLDER"
ROUNDS = 10
ADVICE = "run the same command again: it goes on from its last restart point; ray_logs in the work folder says more"


def train(run: RunConfig) -> dict[str, Any]:
    """Train to the last step; returns what the first worker reports about itself. Raises what the trainer raised."""
    prepare_environment()
    with contextlib.redirect_stdout(sys.stderr):
        import ray
        from omegaconf import open_dict
        from verl.trainer.main_ppo import TaskRunnerV1, run_ppo

        from methods.backend.ray.trainer import PROGRESS_FILE, REPORT_FILE

        if ray.is_initialized():
            raise ConfigError("setting.runner = 'ray': this process is connected to a Ray already; start it without")
        config = compose(run)
    for name in (PROGRESS_FILE, REPORT_FILE):
        (run.work_dir / name).unlink(missing_ok=True)
    with follow_progress(run, run.work_dir / PROGRESS_FILE), ray_folder(run) as folder:
        with open_dict(config):
            if config.ray_kwargs.ray_init.address == "local":
                config.ray_kwargs.ray_init._temp_dir = str(folder)
        watch, kills = None, memory.kernel_kills()
        try:
            # verl and Ray print to stdout, which is kept for the progress line.
            with contextlib.redirect_stdout(sys.stderr), watch_processes(ADVICE) as watch:
                run_ppo(config, task_runner_class=TaskRunnerV1)
        except Exception as error:
            named = _named(error, folder / "session_latest" / "logs" / "raylet.out", run, kills)
            if named is error:
                raise
            raise named from error
        finally:
            if watch is not None:
                if watch.broken:
                    # Ray would wait for what is gone.
                    end(watch.seen, patience=0)
                ray.shutdown(wait_for_processes=True)
                end(watch.seen)
    report = json.loads((run.work_dir / REPORT_FILE).read_text())
    for name in (PROGRESS_FILE, REPORT_FILE):
        (run.work_dir / name).unlink()
    return report


def _named(error: Exception, raylet: Path, run: RunConfig, kills_before: int) -> Exception:
    """The error as its cause: want of memory, which Ray tells in its own way or only in a log, or a divergence."""
    from ray.exceptions import RayError, RayTaskError

    if isinstance(error, DivergedError):  # Ray's error is also one of its cause's class
        return DivergedError(str(getattr(error, "cause", error)))
    lost = isinstance(error, RayLostError) or (isinstance(error, RayError) and not isinstance(error, RayTaskError))
    log = raylet.read_text(errors="replace") if lost and raylet.exists() else ""
    if told := memory.ray_kill(f"{log}\n{error}", run.setting.runner):
        return memory.OutOfMemoryError(told)
    if lost and memory.kernel_kills() > kills_before:
        return memory.OutOfMemoryError(
            f"out of memory: the kernel has ended a process for want of it, and {str(error).partition(';')[0]}; "
            f"{memory.advice(run.setting.runner)}"
        )
    return error


def prepare_environment() -> None:
    """What Ray's processes inherit: the user's variables, this package, its plugins; no address of another Ray."""
    address = os.environ.pop("RAY_ADDRESS", None)
    if address:
        print(
            f"[train] RAY_ADDRESS={address} is not used: a run starts a Ray of its own, with its own environment",
            file=sys.stderr,
        )
    package = str(Path(__file__).resolve().parents[3])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
    given = [name for name in os.environ.get("VERL_USE_EXTERNAL_MODULES", "").split(",") if name]
    # Plugins found by their entry point fail silently (verl/__init__.py:79); those named here raise.
    os.environ["VERL_USE_EXTERNAL_MODULES"] = ",".join([*given, *(name for name in PLUGINS if name not in given)])


@contextlib.contextmanager
def ray_folder(run: RunConfig) -> Iterator[Path]:
    """A folder for Ray's sockets and logs, removed at the end; after a failure its logs are kept with the run."""
    folder = Path(tempfile.mkdtemp(prefix=f"{FOLDER}{os.getpid()}-", dir=temporary_root()))
    os.environ[MARK] = str(folder)
    try:
        yield folder
    except BaseException:
        kept = run.work_dir / "ray_logs"
        shutil.rmtree(kept, ignore_errors=True)
        with contextlib.suppress(OSError):
            shutil.copytree(folder / "session_latest" / "logs", kept)
        raise
    finally:
        os.environ.pop(MARK, None)
        shutil.rmtree(folder, ignore_errors=True)


def temporary_root() -> Path:
    """Where the folders of all runs' Rays are."""
    root = Path(tempfile.gettempdir())
    return root if len(str(root)) <= LONGEST_ROOT else Path("/tmp")


def remove_orphans() -> None:
    """End what launchers that were killed have left: a trainer without launcher may still write for some seconds."""
    for folder in temporary_root().glob(f"{FOLDER}*"):
        owner = folder.name.removeprefix(FOLDER).split("-")[0]
        if owner.isdigit() and not _launcher_lives(int(owner)):
            # Again: what is ended may have started another process while the first were looked up.
            for _ in range(ROUNDS):
                if not (left := processes_of(str(folder))):
                    break
                end(left, patience=0)
            shutil.rmtree(folder, ignore_errors=True)


def _launcher_lives(launcher: int) -> bool:
    """Whether the launcher runs; a zombie whose parent never asks does not.

    A later process of its id counts as the launcher: to tell them apart by times would end a run where the clock steps.
    """
    try:
        return runs(psutil.Process(launcher))
    except psutil.NoSuchProcess:
        return False


def processes_of(folder: str) -> set[psutil.Process]:
    """Processes of the Ray whose folder this is; only a user's own can be looked at."""
    found = set()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK) == folder and runs(process):
                found.add(process)
    return found


@contextlib.contextmanager
def follow_progress(run: RunConfig, path: Path) -> Iterator[None]:
    """Print the progress line from what the trainer, in its own process, appends to `path`."""
    done = threading.Event()
    thread = threading.Thread(target=_follow, args=(run, path, done, sys.stdout), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _follow(run: RunConfig, path: Path, done: threading.Event, terminal: TextIO) -> None:
    progress: Progress | None = None
    seen, last = 0, False
    while not last:
        last = done.wait(0.2)
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        for line in lines[seen:]:
            step, data = json.loads(line)
            if progress is None:
                progress = Progress(run, step, terminal)
            else:
                progress(step, data)
        seen = len(lines)
