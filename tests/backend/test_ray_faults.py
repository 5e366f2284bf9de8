"""definition: what the `ray` runner does about processes that die, in small pieces; whole runs are in test_ray.py.

Every loss that Ray answers late or never (GCS, transfer queue, agent loop) is in `python -m workflows soak --runner`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from methods.backend import environment
from methods.backend.ray import launch as ray_launch
from methods.backend.ray import watch as ray_watch
from methods.backend.ray.watch import RayLostError, watch_processes
from ray_running import wait_for


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts processes that are called what Ray calls its own."""
    monkeypatch.setattr(ray_watch, "PERIOD_SECONDS", 0.05)
    monkeypatch.setattr(ray_watch, "PATIENCE_SECONDS", 0.3)
    processes = []

    def start(title: str, watch: ray_watch.Watch | None = None, **environment: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([title, "60"], executable="/bin/sleep", env={**os.environ, **environment})
        processes.append(process)
        if watch is not None:
            wait_for(lambda: psutil.Process(process.pid) in watch.titles, seconds=60)
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()


def lose(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def test_a_loss_that_ray_does_not_tell_ends_the_wait(started: Callable[..., Any]) -> None:
    """The trainer polls for what will never come."""
    begin = time.monotonic()
    message = r"^TransferQueueController \(pid \d+\) of this run's Ray died; do this$"
    with pytest.raises(RayLostError, match=message), watch_processes("do this") as watch:
        lose(started("ray::TransferQueueController", watch))
        time.sleep(30)
    assert time.monotonic() - begin < 10


def test_rays_own_error_is_told_with_the_process_that_died(started: Callable[..., Any]) -> None:
    with pytest.raises(RayLostError, match=r"WorkerDict \(pid") as raised, watch_processes("") as watch:
        lose(started("ray::WorkerDict.update_actor", watch))
        raise RuntimeError("Ray says this")
    assert str(raised.value.__cause__) == "Ray says this"


@pytest.mark.parametrize("title", ["ray::IDLE", "ray::some_task", "sleep", "ray::SimpleStorageUnit"])
def test_an_error_of_the_training_stays_what_it_is(title: str, started: Callable[..., Any]) -> None:
    """Idle workers and tasks come and go; verl closes its transfer queue after every error."""
    with pytest.raises(ZeroDivisionError), watch_processes("") as watch:
        lose(started(title, watch))
        raise ZeroDivisionError


def test_ctrl_c_stays_ctrl_c(started: Callable[..., Any]) -> None:
    with pytest.raises(KeyboardInterrupt), watch_processes("") as watch:
        lose(started("ray::WorkerDict", watch))
        raise KeyboardInterrupt


@pytest.mark.parametrize("asked", [True, False])
def test_what_a_killed_launcher_left_is_ended(
    asked: bool, started: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its processes and its folder, also where nobody has asked how it ended; those of a launcher that runs stay."""
    monkeypatch.setattr(ray_launch, "temporary_root", lambda: tmp_path)
    over = subprocess.Popen(["true"])
    if asked:
        over.wait()
    else:
        wait_for(lambda: psutil.Process(over.pid).status() == psutil.STATUS_ZOMBIE, seconds=60)
    folders = [tmp_path / f"{ray_launch.FOLDER}{pid}-x" for pid in (over.pid, os.getpid())]
    for folder in folders:
        folder.mkdir()
    orphan, busy = (started("ray::TaskRunnerV1", **{ray_launch.MARK: str(folder)}) for folder in folders)
    other = started("ray::TaskRunnerV1")
    ray_launch.remove_orphans()
    assert not psutil.pid_exists(orphan.pid) and not folders[0].exists()
    assert busy.poll() is None and other.poll() is None and folders[1].exists()


def test_a_process_with_a_title_of_its_own_is_found(tmp_path: Path) -> None:
    """Ray's agents call themselves so once they run, which wipes a process's environment unless it is told not to."""
    program = (
        "import ray, sys; from ray._raylet import setproctitle; setproctitle('ray::DashboardAgent');"
        "print(flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, **environment.DEFAULTS, ray_launch.MARK: str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    assert psutil.Process(process.pid).cmdline()[0] == "ray::DashboardAgent"
    found = {each.pid for each in ray_launch.processes_of(str(tmp_path))}
    process.communicate()
    assert found == {process.pid} and not ray_launch.processes_of(str(tmp_path))


@pytest.mark.parametrize(("partition", "rows"), [("train", 7), ("val", 1)])
def test_a_step_on_part_of_a_batch_is_refused(partition: str, rows: int) -> None:
    """verl's replay buffer leaves out what a dead server did not answer; 2 prompts x 4 samples, 1 in validation."""
    from methods.backend.ray.trainer import whole

    rollout = SimpleNamespace(n=4, val_kwargs=SimpleNamespace(n=1))

    def sample(keys: int) -> Any:
        given = whole(lambda **_: (SimpleNamespace(keys=[""] * keys), {}), rollout)
        return given(global_steps=1, partition_id=partition, batch_size=2)

    assert len(sample(rows + 1)[0].keys) == rows + 1
    with pytest.raises(RuntimeError, match=rf"the rollout gave {rows} of {rows + 1} responses"):
        sample(rows)
