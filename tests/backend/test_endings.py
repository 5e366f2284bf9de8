"""definition: how a training that does not reach its end says so: one line with cause and remedy, no traceback."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from methods.backend import launch, trainer
from methods.backend.ray import launch as ray_launch
from methods.backend.ray.watch import RayLostError
from methods.backend.run import folder as run_folder
from methods.backend.run import log as run_log
from methods.backend.run import memory, restart

# As Ray 2.60 writes it, in the error and in raylet.out; the middle is left out.
RAY_KILL = """Memory on the node (IP: 192.0.2.2, ID: 74ba) was 2.70GB used / 23.54GB limit (0.114738)
OOM kill reason: Memory usage 2892599296B exceeded threshold of 1263825536B (5.0% of 25276510208B limit)
Selected to kill: (Task: job ID=01000000, task name=WorkerDict.update_actor, required resources={}, pid=16479)
Top 10 memory users: PID\tMEM(GB)\tCOMMAND
14486\t1.03\t.venv/bin/python -m pytest -q tests
16479\t0.06\tray::IDLE
"""


def ended(run: Any, capfd: Any) -> tuple[int, str]:
    """Exit status, and what the terminal shows of ours."""
    status = launch.main(["--json", json.dumps(run.dump())])
    out, err = capfd.readouterr()
    assert "Traceback" not in out + err
    (line,) = [line for line in (out + err).splitlines() if re.match(r"error:|\[train\] stopped", line)]
    return status, line


@pytest.mark.parametrize(
    ("number", "at", "status", "comes"),
    [
        (signal.SIGTERM, 2, 143, "goes on after step 2"),
        (signal.SIGINT, 2, 130, "goes on after step 2"),
        (signal.SIGINT, 1, 130, "starts anew, since it had no restart point yet"),
    ],
)
def test_a_stopped_training_says_what_comes_next(
    number: int,
    at: int,
    status: int,
    comes: str,
    tiny_world: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: Any,
) -> None:
    """A signal to this process before the first, and after the second restart point."""
    seal = restart.seal

    def sealing(checkpoint: Path) -> None:
        if at > 1:
            seal(checkpoint)
        if restart.step_of(checkpoint) == at:
            os.kill(os.getpid(), number)
            time.sleep(5)

    monkeypatch.setattr(restart, "seal", sealing)
    before = signal.getsignal(signal.SIGTERM)
    told = ended(tiny_world.run_config(tmp_path / "run", save_every=1), capfd)
    assert told == (status, f"[train] stopped; the same command {comes}")
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("where", ["metric", "weight"])
def test_a_training_that_diverges_publishes_nothing(
    where: str, tiny_world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    """NaN in a metric of step 2, or in the weights that its update made, of which no metric knows yet."""
    if where == "metric":
        compute = trainer.TetherTrainer._compute_metrics

        def computed(self: Any, batch: Any, metrics: dict[str, Any], *args: Any, **kwargs: Any) -> None:
            metrics["actor/pg_loss"] = float("nan") if self.global_steps == 2 else metrics["actor/pg_loss"]
            compute(self, batch, metrics, *args, **kwargs)

        monkeypatch.setattr(trainer.TetherTrainer, "_compute_metrics", computed)
        expected = "error: metric loss = nan at step 2: the training has diverged"
    else:
        export = run_folder.export

        def exporting(run: Any, checkpoint: Path, step: int) -> None:
            path = checkpoint / "actor" / "huggingface" / "model.safetensors"
            tensors = load_file(path)
            tensors["model.norm.weight"] = torch.full_like(tensors["model.norm.weight"], float("nan"))
            save_file(tensors, path, metadata={"format": "pt"})
            export(run, checkpoint, step)

        monkeypatch.setattr(run_folder, "export", exporting)
        expected = "error: weight model.norm.weight is not finite after step 2: the training has diverged"
    run = tiny_world.run_config(tmp_path / "run", steps=2)
    assert ended(run, capfd) == (1, expected)
    assert not Path(run.output).exists() and restart.newest(run.work_dir / "verl") == 0


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MemoryError(), r"MemoryError"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."), r".*9 bytes\."),
        (OSError(12, "Cannot allocate memory"), r"OSError: .*"),
    ],
)
def test_want_of_memory_is_named(
    error: Exception, reason: str, tiny_world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    """By Python, by torch, by the operating system; raised in place of the training."""

    def starved(run: Any) -> Any:
        raise error

    monkeypatch.setattr(launch, "_train_in_process", starved)
    status, line = ended(tiny_world.run_config(tmp_path / "run"), capfd)
    sizes = r"[\d.]+ GB of [\d.]+ GB are free; a run of toy size needs 3 GB: run fewer at once .* setting\.prompts"
    assert status == 1 and re.match(rf"error: out of memory \({reason}\); {sizes}", line), line


def test_another_error_is_no_want_of_memory() -> None:
    with pytest.raises(RuntimeError, match="^shape"), memory.shortage_told("inprocess"):
        raise RuntimeError("shape [2, 3] is invalid")


@pytest.mark.parametrize("kind", ["monitor", "log", "kernel"])
def test_rays_want_of_memory_is_named(
    kind: str, tiny_world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray's own error; a lost process of which only raylet.out tells; one that the kernel ended. Texts, not a Ray."""
    from ray.exceptions import OutOfMemoryError

    run, log = tiny_world.run_config(tmp_path / "run", runner="ray"), tmp_path / "raylet.out"
    lost: Exception = RayLostError("WorkerDict (pid 7) of this run's Ray died; run the same command again")
    expected = (
        r"^out of memory: Ray ended WorkerDict because 2\.70GB of 23\.54GB were used on this machine "
        r"\(largest: \.venv/bin/python -m pytest -q tests, 1\.03 GB\); a run of toy size needs 7 GB"
    )
    if kind == "monitor":
        lost = OutOfMemoryError(RAY_KILL)
    elif kind == "log":
        log.write_text(f"[raylet] Killing 1 worker(s), kill details: {RAY_KILL}")
    else:
        monkeypatch.setattr(memory, "kernel_kills", lambda: 4)
        expected = r"^out of memory: the kernel has ended a process for want of it, and WorkerDict \(pid 7\) of this"
    named = ray_launch._named(lost, log, run, kills_before=3)
    assert isinstance(named, memory.OutOfMemoryError) and re.match(expected, str(named)), named


def test_a_lost_process_is_no_want_of_memory(tiny_world: Any, tmp_path: Path) -> None:
    run, lost = tiny_world.run_config(tmp_path / "run", runner="ray"), RayLostError("raylet (pid 7) died")
    (tmp_path / "raylet.out").write_text("ThresholdMemoryMonitor initialized with usage threshold")
    assert ray_launch._named(lost, tmp_path / "raylet.out", run, memory.kernel_kills()) is lost


def test_a_divergence_on_ray_is_told_as_here(tiny_world: Any, tmp_path: Path) -> None:
    """Ray wraps an error of the trainer into one of its own that is also of the first one's class."""
    from ray.exceptions import RayTaskError

    cause = run_log.DivergedError("metric loss = nan at step 2")
    wrapped = RayTaskError("run", "Traceback ...", cause).as_instanceof_cause()
    named = ray_launch._named(wrapped, tmp_path / "none", tiny_world.run_config(tmp_path / "run", runner="ray"), 0)
    assert type(named) is run_log.DivergedError and str(named) == "metric loss = nan at step 2"


def test_a_reward_that_fails_during_a_training_is_named(tiny_world: Any, tmp_path: Path, capfd: Any) -> None:
    """The responses that are tried before a run pass; one that the policy writes does not."""
    reward = tmp_path / "reward.py"
    reward.write_text(
        "calls = []\n\n\ndef compute_score(solution_str, **_):\n    calls.append(1)\n"
        "    return 1 / 0 if len(calls) > 8 else 0.0\n"
    )
    run = tiny_world.run_config(tmp_path / "run", reward_function={"path": str(reward)})
    status, line = ended(run, capfd)
    assert status == 1 and line.startswith("error: reward of the prompt ")
    assert "raised ZeroDivisionError: division by zero for the response " in line
