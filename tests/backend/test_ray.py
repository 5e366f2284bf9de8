"""conformance: the `ray` runner (verl.trainer.main_ppo with workers, queue and servers of its own) against `inprocess`.

Not covered: several nodes, an existing cluster, accelerators, other engines than FSDP.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from methods.backend import launch

pytestmark = pytest.mark.slow

MARK = "TETHER_TEST_RUN"
# float32 sampling: bfloat16 rounds, and a sum in another order may then round to another number.
SETTINGS: dict[str, Any] = {"rollout_precision": "fp32", "validate_every": 2}
# Sums of a few hundred float32 terms in another order, carried through six optimiser steps.
TOLERANCE = 2e-5
REWARD = """
import os

def compute_score(solution_str, ground_truth, **_):
    return float(solution_str.strip() == ground_truth) * float(os.environ["REWARD_SCALE"])
"""


@dataclass
class Running:
    """A launcher in a folder with a blank in its name; every process it starts inherits the mark."""

    process: subprocess.Popen[str]
    output: Path
    mark: str

    @classmethod
    def start(cls, cell: Any, folder: Path) -> Running:
        output = folder / cell.output
        description = folder / f"{output.name}.json"
        description.write_text(json.dumps(cell.dump()))
        mark = uuid.uuid4().hex
        # Nobody listens there: what a Ray that was once used leaves in the environment.
        environment = {**os.environ, MARK: mark, "RAY_ADDRESS": "127.0.0.1:9"}
        process = subprocess.Popen(
            [sys.executable, "-m", "methods.backend.launch", description.name],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        return cls(process, output, mark)

    def finish(self) -> str:
        text, _ = self.process.communicate(timeout=500)
        assert self.process.returncode == 0, text
        return text

    def left(self) -> list[str]:
        """Command lines of living processes that carry the mark."""
        found = []
        for folder in Path("/proc").iterdir():
            try:
                if folder.name.isdigit() and f"{MARK}={self.mark}".encode() in (folder / "environ").read_bytes():
                    found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
        return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ray runs")
    (path / "reward.py").write_text(REWARD)
    return path


@pytest.fixture(scope="module")
def cell(tiny_world: Any) -> Iterator[Callable[..., Any]]:
    """Cells with relative paths, and a reward that needs an environment variable of the user."""

    def build(name: str, **changes: Any) -> Any:
        return tiny_world.cell(Path(name), reward_function={"path": "reward.py"}, **SETTINGS, **changes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REWARD_SCALE", "1.0")
        yield build


@pytest.fixture(scope="module")
def runs(cell: Callable[..., Any], folder: Path) -> dict[str, Path]:
    """One process, Ray with one worker, Ray with two: the two Rays at once, so each runs beside another one."""
    started = [
        Running.start(cell("one", runner="ray"), folder),
        Running.start(cell("two", runner="ray", ranks=2), folder),
    ]
    here = os.getcwd()
    try:
        os.chdir(folder)
        launch.train(cell("inprocess"))
        for run in started:
            run.finish()
            assert run.left() == []
    finally:
        os.chdir(here)
        for run in started:
            run.process.kill()
    return {name: folder / name for name in ("inprocess", "one", "two")}


def rows(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]


def weights(output: Path) -> dict[str, torch.Tensor]:
    return load_file(output / "checkpoints" / "step_3" / "model.safetensors")


def test_one_worker_gives_the_same_bytes(runs: dict[str, Path]) -> None:
    """All metrics of all steps and the final weights."""
    assert (runs["one"] / "metrics.jsonl").read_bytes() == (runs["inprocess"] / "metrics.jsonl").read_bytes()
    expected = weights(runs["inprocess"])
    assert all(torch.equal(tensor, expected[name]) for name, tensor in weights(runs["one"]).items())
    data = rows(runs["inprocess"])[-1]["data"]
    assert data["grad_norm"] > 0 and data["tokens/active"] > 0


def test_two_ranks_give_one_rank_up_to_the_order_of_sums(runs: dict[str, Path]) -> None:
    """The same tokens are drawn, so that counts are equal; the rest differs by rounding. Not: checksums of weights."""
    one, two = rows(runs["inprocess"]), rows(runs["two"])
    assert [row["step"] for row in two] == [row["step"] for row in one]
    exact = ("tokens/", "reward/", "val/", "response_length/", "updates/", "lr", "weights/sampled_version")
    for a, b in zip(one, two, strict=True):
        assert a["data"].keys() == b["data"].keys()
        for name, value in a["data"].items():
            if name.startswith(exact):
                assert b["data"][name] == value, name
            elif not name.endswith("checksum"):
                assert b["data"][name] == pytest.approx(value, rel=TOLERANCE, abs=1e-7), name
    expected = weights(runs["inprocess"])
    assert all(torch.allclose(t, expected[name], atol=TOLERANCE) for name, t in weights(runs["two"]).items())


def test_the_workers_run_what_was_asked_for(runs: dict[str, Path]) -> None:
    """Read back from the Ray workers: platform, engine, rollout, loss; and how many they were."""
    expected = json.loads((runs["inprocess"] / "manifest.json").read_text())["worker"]
    for name, ranks in (("one", 1), ("two", 2)):
        report = json.loads((runs[name] / "manifest.json").read_text())["worker"]
        assert report == {**expected, "ranks": ranks}


def test_interrupted_runs_leave_nothing_running(cell: Callable[..., Any], folder: Path) -> None:
    """Ctrl-C and SIGKILL, both as soon as Ray has started workers. Not: SIGKILL of the raylet itself."""
    numbers = (signal.SIGINT, signal.SIGKILL)
    started = [Running.start(cell(f"interrupted{number}", runner="ray"), folder) for number in numbers]
    try:
        for run, number in zip(started, numbers, strict=True):
            wait_for(lambda run=run: any("ray::" in line for line in run.left()), seconds=240)
            run.process.send_signal(number)
        for run, number in zip(started, numbers, strict=True):
            run.process.communicate(timeout=120)
            # After SIGKILL nobody waits for the workers; they end when they miss their raylet.
            wait_for(lambda run=run: not run.left(), seconds=1 if number == signal.SIGINT else 60)
    finally:
        for run in started:
            run.process.kill()
    assert all(run.process.returncode != 0 and not run.output.exists() for run in started)


def test_a_server_samples_from_the_trainers_weights(cell: Callable[..., Any], folder: Path) -> None:
    """definition: support and log-probs pass through verl's agent loop; pi is mu to rounding where nothing is stale.

    Not covered: equality with the other runners, whose tokens are seeded by batch and not by request.
    """
    run = Running.start(cell("server", runner="ray", server=True, lag=0, mini_batches=1), folder)
    try:
        run.finish()
    finally:
        run.process.kill()
    assert run.left() == []
    steps = rows(run.output)
    assert [row["step"] for row in steps] == [0, 1, 2, 3]
    for row in steps[1:]:
        data = row["data"]
        assert data["gap/sampled_max"] <= 1e-5 and data["gap/topk_max"] <= 1e-5
        assert 0.5 < data["support/mass_mu"] == pytest.approx(data["support/mass_pi"], abs=1e-5)
        assert data["weights/sampled_version"] == row["step"] - 1 and data["staleness/mean"] == 0
        assert data["tokens/active"] > 0 and data["grad_norm"] > 0
    assert len({row["data"]["weights/sampled_checksum"] for row in steps[1:]}) == 3


needs_vllm = pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed: make vllm")


@pytest.fixture(scope="module")
def vllm_runs(cell: Callable[..., Any], folder: Path) -> dict[str, Path]:
    """vLLM in one process and in Ray's worker, in int8; and verl's vLLM server, in float32. The two Rays at once."""
    int8 = {"rollout_engine": "vllm", "rollout_quantization": "int8_w8a8"}
    server = {"runner": "ray", "server": True, "rollout_engine": "vllm", "lag": 0, "mini_batches": 1}
    started = [
        Running.start(cell("vllm worker", runner="ray", **int8), folder),
        Running.start(cell("vllm server", **server), folder),
    ]
    try:
        alone = Running.start(cell("vllm", **int8), folder)
        started.append(alone)
        for run in started:
            run.finish()
            assert run.left() == []
    finally:
        for run in started:
            run.process.kill()
    return {run.output.name: run.output for run in started}


@needs_vllm
def test_vllm_in_a_worker_gives_the_same_bytes(vllm_runs: dict[str, Path]) -> None:
    """With weights quantised anew at each sync, and their differences to the trainer's those of int8."""
    worker, alone = ((vllm_runs[name] / "metrics.jsonl").read_bytes() for name in ("vllm worker", "vllm"))
    assert worker == alone
    assert rows(vllm_runs["vllm"])[1]["data"]["gap/sampled_mean"] > 1e-3
    report = json.loads((vllm_runs["vllm worker"] / "manifest.json").read_text())["worker"]
    assert report["rollout_details"] == {"vllm": "0.30.0", "quantization": "int8_w8a8"}


@needs_vllm
def test_verls_vllm_server_samples_from_the_trainers_weights(vllm_runs: dict[str, Path]) -> None:
    """definition: at every step pi, with the updates of the steps before, is mu to float32's error: one stale or mixed
    load would show. Each step sampled from other weights, as the engine's process counted them.

    Not covered: lag (test_vllm_server.py), several ranks, equality with the other runners, whose seeds are others.
    """
    steps = rows(vllm_runs["vllm server"])
    assert [row["step"] for row in steps] == [0, 1, 2, 3]
    for row in steps[1:]:
        data = row["data"]
        assert data["gap/sampled_max"] <= 2e-5 and data["gap/topk_max"] <= 2e-5
        assert 0.5 < data["support/mass_mu"] == pytest.approx(data["support/mass_pi"], abs=1e-5)
        assert data["weights/sampled_version"] == row["step"] - 1 and data["staleness/mean"] == 0
        assert data["tokens/active"] > 0 and data["grad_norm"] > 0
    assert len({row["data"]["weights/sampled_checksum"] for row in steps[1:]}) == 3
    worker = json.loads((vllm_runs["vllm server"] / "manifest.json").read_text())["worker"]
    assert worker["rollout"] == "methods.backend.vllm_server.VLLMServerRollout"


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.05)
