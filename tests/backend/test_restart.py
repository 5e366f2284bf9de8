"""definition and property: interruptions at each awkward moment, then the same end or a refusal that says why.

A raised exception stands in for a kill here, at places that a timed SIGKILL would rarely hit; the real SIGKILL is in
test_repeatability and in `make soak`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from methods.backend import launch, trainer
from methods.backend.run import folder as run_folder
from methods.backend.run import kept, restart
from published import contents

SETTINGS = {"steps": 4, "save_every": 1, "export_every": 2, "validate_every": 1, "staleness": 2, "rollouts": True}


class Killed(BaseException):
    """Not an Exception: nothing of ours may catch and tidy."""


def once(function: Any, at_call: int = 1, after: bool = False) -> Any:
    """The function, but its n-th call raises Killed, before or after doing its work."""
    calls = []

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) == at_call and not after:
            raise Killed
        out = function(*args, **kwargs)
        if len(calls) == at_call:
            raise Killed
        return out

    return wrapped


@pytest.fixture(scope="module")
def whole(tiny_world: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    output = tmp_path_factory.mktemp("whole") / "run"
    launch.train(tiny_world.run_config(output, **SETTINGS))
    return contents(output)


def interrupted(run: Any, patch: pytest.MonkeyPatch, place: Any, name: str, **when: Any) -> None:
    with patch.context() as context:
        context.setattr(place, name, once(getattr(place, name), **when))
        with pytest.raises(Killed):
            launch.train(run)
    assert not Path(run.output).exists()


@pytest.mark.parametrize(
    ("place", "name", "when"),
    [
        (restart, "seal", {"at_call": 3}),  # the save is written, not sealed
        (restart, "seal", {"at_call": 3, "after": True}),
        (run_folder, "export", {"at_call": 2}),
        (restart, "write_text", {"at_call": 4}),  # sealed, but verl's tracker still names the one before
        (kept, "seal", {}),  # all steps done
        (run_folder, "publish", {}),  # and kept
        (run_folder, "verl_overrides", {}),  # half staged
    ],
)
def test_an_interrupted_run_ends_like_the_whole_one(
    place: Any,
    name: str,
    when: dict[str, Any],
    whole: dict[str, bytes],
    tiny_world: Any,
    tmp_path: Path,
    monkeypatch: Any,
) -> None:
    run = tiny_world.run_config(tmp_path / "run", **SETTINGS)
    interrupted(run, monkeypatch, place, name, **when)
    launch.train(run)
    assert contents(Path(run.output)) == whole
    expected = {"run.json", "finished.json", "metrics.jsonl", "timing.jsonl", "checkpoints", "rollouts", "verl"}
    assert {p.name for p in tmp_path.iterdir()} == {"run", "run.work"}
    assert {p.name for p in run.work_dir.iterdir()} == expected


def test_other_inputs_start_over(
    whole: dict[str, bytes], tiny_world: Any, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    """The same paths with another model behind them: the half-trained run is not taken up."""
    import shutil

    from safetensors.torch import load_file, save_file

    model = tmp_path / "model"
    shutil.copytree(tiny_world.model, model)
    tensors = load_file(model / "model.safetensors")
    save_file({name: 0.5 * t for name, t in tensors.items()}, model / "model.safetensors", metadata={"format": "pt"})
    run = tiny_world.run_config(tmp_path / "run", model=str(model), **SETTINGS)
    interrupted(run, monkeypatch, kept, "seal")
    shutil.copy2(tiny_world.model / "model.safetensors", model / "model.safetensors")
    launch.train(run)
    assert "inputs changed since the interrupted run" in capsys.readouterr().out
    assert contents(Path(run.output))["metrics.jsonl"] == whole["metrics.jsonl"]


def test_a_truncated_tracker_file_is_put_right(
    whole: dict[str, bytes], tiny_world: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    """verl rewrites it in place; a kill leaves it empty."""
    run = tiny_world.run_config(tmp_path / "run", **SETTINGS)
    interrupted(run, monkeypatch, restart, "seal", at_call=2, after=True)
    (run.work_dir / "verl" / restart.TRACKER).write_text("")
    assert restart.prepare(run.work_dir / "verl") == 2
    launch.train(run)
    assert contents(Path(run.output)) == whole


@pytest.mark.parametrize("fault", ["flipped", "missing", "short"])
def test_a_corrupt_checkpoint_is_refused_by_name(fault: str, tiny_world: Any, tmp_path: Path, monkeypatch: Any) -> None:
    run = tiny_world.run_config(tmp_path / "run", **SETTINGS)
    interrupted(run, monkeypatch, restart, "seal", at_call=2, after=True)
    (path,) = (run.work_dir / "verl").rglob("model_world_size_1_rank_0.pt")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    {
        "flipped": lambda: path.write_bytes(data),
        "missing": path.unlink,
        "short": lambda: path.write_bytes(data[:-1]),
    }[fault]()
    with pytest.raises(restart.RestartError, match=rf"{path.name}: (other bytes|missing).*to train this run from the"):
        launch.train(run)


def test_a_full_disk_stops_the_run_and_loses_no_restart_point(
    whole: dict[str, bytes], tiny_world: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    """torch.save fails half-way through the third checkpoint."""
    import torch

    run = tiny_world.run_config(tmp_path / "run", **SETTINGS)
    real, calls = torch.save, []

    def failing(value: Any, target: Any, *args: Any, **kwargs: Any) -> None:
        calls.append(1)
        if len(calls) > 12:
            Path(target).write_bytes(b"half")
            raise OSError(28, "No space left on device")
        real(value, target, *args, **kwargs)

    with monkeypatch.context() as context:
        context.setattr(torch, "save", failing)
        with pytest.raises(run_folder.DiskFullError, match=r"No space left on device .* from its last restart point"):
            launch.train(run)
    assert restart.prepare(run.work_dir / "verl") >= 1
    launch.train(run)
    assert contents(Path(run.output)) == whole


def test_a_row_cut_by_a_full_disk_is_neither_kept_nor_doubled(tiny_world: Any, tmp_path: Path) -> None:
    """The operating system refuses the second half of a row, by a limit on the size of files."""
    settings = {"steps": 4, "save_every": 2, "validate_every": 1, "staleness": 2}
    launch.train(tiny_world.run_config(tmp_path / "whole", **settings))
    run = tiny_world.run_config(tmp_path / "run", **settings)
    log, seal = run.work_dir / "metrics.jsonl", run.work_dir / "verl" / "global_step_2" / restart.SEAL
    program = PROGRAM.replace("LOG", repr(str(log))).replace("SEAL", repr(str(seal)))
    done = subprocess.run(
        [sys.executable, "-c", program, "--json", json.dumps(run.dump())], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 1 and re.search(r"^error: .*No space left on device", done.stderr, re.M), done.stderr
    rows = log.read_text().split("\n")
    assert [json.loads(row)["step"] for row in rows[:3]] == [0, 1, 2] and len(rows) == 4 and rows[3].startswith("{")
    with pytest.raises(json.JSONDecodeError):
        json.loads(rows[3])
    launch.train(run)
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


# Once the restart point of step 2 is sealed, no file may grow past 100 bytes of the log's next row.
PROGRAM = """
import os, resource, sys
from methods.backend import launch
from methods.backend.run import restart

def seal(checkpoint, sealed=restart.seal):
    sealed(checkpoint)
    resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(LOG) + 100, resource.RLIM_INFINITY))

restart.seal = seal
sys.exit(launch.main(sys.argv[1:]))
"""


def test_fp16_goes_on_with_its_loss_scale(tiny_world: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """A scale that overflows in the first three steps: it is halved before the interruption and after it."""
    setup = trainer.InProcessTrainer._setup

    def started(self: Any) -> None:
        setup(self)
        if self.global_steps == 0:
            self.worker.actor.engine.scaler._init_scale = 2.0**24

    monkeypatch.setattr(trainer.InProcessTrainer, "_setup", started)
    settings = {**SETTINGS, "train_precision": "fp16", "rollout_precision": "fp16"}
    launch.train(tiny_world.run_config(tmp_path / "whole", **settings))
    run = tiny_world.run_config(tmp_path / "run", **settings)
    interrupted(run, monkeypatch, restart, "seal", at_call=2, after=True)
    launch.train(run)
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")
    rows = [json.loads(row)["data"] for row in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[1:]]
    assert rows[2]["updates/overflowed_steps"] > 0 and rows[-1]["updates/overflowed_steps"] == 0


def test_a_second_process_waits_and_takes_the_result(tiny_world: Any, tmp_path: Path) -> None:
    """It says which process trains the run, and takes up what that one finishes while it waits."""
    run = tiny_world.run_config(tmp_path / "run")
    command = [sys.executable, "-m", "methods.backend.launch", "--json", json.dumps(run.dump())]
    with run_folder.hold_work(run):
        second = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert second.stdout is not None
        for line in second.stdout:
            if f"process {os.getpid()} trains this run already" in line:
                break
        # As `launch.train` does it, which would wait for its own lock.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(run_folder, "hold_work", lambda _: contextlib.nullcontext())
            launch.train(run)
        metrics = (tmp_path / "run" / "metrics.jsonl").stat().st_mtime_ns
    text, _ = second.communicate(timeout=240)
    assert second.returncode == 0 and "trained already" in text, text
    assert (tmp_path / "run" / "metrics.jsonl").stat().st_mtime_ns == metrics
    assert not run.work_dir.with_name("run.work.lock").exists()
