"""conformance: the `ray` runner (verl.trainer.main_ppo with workers, queue and servers of its own) against `inprocess`.

Not covered: several nodes, an existing cluster, accelerators, other engines than FSDP.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from methods.backend import launch
from ray_running import MARK, Running, alive, wait_for

pytestmark = pytest.mark.slow

# float32 sampling: bfloat16 rounds, and a sum in another order may then round to another number.
SETTINGS: dict[str, Any] = {"rollout_precision": "fp32", "validate_every": 2, "reference_kl": 0.05}
# What is left out of the loss, kept, and shown to the reward is the same wherever it is computed.
SETTINGS |= dict.fromkeys(("mask_truncated", "skip_flat_groups", "rollouts", "reward_special_tokens"), True)
# Sums of a few hundred float32 terms in another order, carried through six optimiser steps.
TOLERANCE = 2e-5
REWARD = """
import os

def compute_score(solution_str, ground_truth, **_):
    return float(solution_str.replace(" <eos>", "") == ground_truth) * float(os.environ["REWARD_SCALE"])
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ray runs")
    (path / "reward.py").write_text(REWARD)
    return path


@pytest.fixture(scope="module")
def run_config(tiny_world: Any) -> Iterator[Callable[..., Any]]:
    """Runs with relative paths, and a reward that needs an environment variable of the user."""

    def build(name: str, **changes: Any) -> Any:
        return tiny_world.run_config(Path(name), reward_function={"path": "reward.py"}, **SETTINGS, **changes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REWARD_SCALE", "1.0")
        yield build


@pytest.fixture(scope="module")
def users_ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The mark of a Ray that a user has left running, as `ray start --head` does; it has no worker yet."""
    mark, folder = uuid.uuid4().hex, Path(tempfile.mkdtemp(prefix="user", dir="/tmp"))
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--include-dashboard=false"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [*command, "--port=0", f"--temp-dir={folder}"],
            env={**os.environ, MARK: mark},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        wait_for(lambda: "Ray runtime started" in (folder / "log").read_text(), seconds=120)
        yield mark
    finally:
        for pid in alive(mark):
            os.kill(pid, signal.SIGKILL)
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def runs(run_config: Callable[..., Any], folder: Path, users_ray: str) -> dict[str, Path]:
    """One process, Ray with one worker, Ray with two: the two Rays at once and beside a user's.

    The launcher of the one worker is killed after a step, and the same command given again at once.
    """
    before = alive(users_ray)
    one = run_config("one", runner="ray", save_every=1)
    started = [Running.start(one, folder), Running.start(run_config("two", runner="ray", ranks=2), folder)]
    here = os.getcwd()
    try:
        wait_for(lambda: started[0].rows() > 2, seconds=400)
        started[0].process.kill()
        started.append(Running.start(one, folder))
        os.chdir(folder)
        launch.train(run_config("inprocess"))
        assert "[train] goes on after step" in started[2].finish()
        started[1].finish()
        assert [run.left() for run in started] == [[], [], []]
        # Nobody has asked it for a worker, and nobody has ended it.
        # By their ids: its agents give themselves a title when they run.
        assert any("raylet" in line for line in before.values()) and alive(users_ray).keys() == before.keys()
    finally:
        os.chdir(here)
        for run in started:
            run.process.kill()
    return {name: folder / name for name in ("inprocess", "one", "two")}


def rows(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]


def rollouts(output: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (output / "rollouts").iterdir()}


def weights(output: Path) -> dict[str, torch.Tensor]:
    return load_file(output / "checkpoints" / "step_3" / "model.safetensors")


def test_one_worker_gives_the_same_bytes_through_a_kill(runs: dict[str, Path]) -> None:
    """All metrics of all steps and the final weights, of a run whose launcher was killed after its first steps."""
    assert (runs["one"] / "metrics.jsonl").read_bytes() == (runs["inprocess"] / "metrics.jsonl").read_bytes()
    expected = weights(runs["inprocess"])
    assert all(torch.equal(tensor, expected[name]) for name, tensor in weights(runs["one"]).items())
    assert rollouts(runs["one"]) == rollouts(runs["two"]) == rollouts(runs["inprocess"]) != {}
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


def test_ctrl_c_leaves_nothing_running(run_config: Callable[..., Any], folder: Path) -> None:
    """As soon as Ray has started workers."""
    run = Running.start(run_config("interrupted", runner="ray"), folder)
    try:
        wait_for(lambda: any("ray::" in line for line in run.left()), seconds=240)
        run.process.send_signal(signal.SIGINT)
        run.process.communicate(timeout=120)
    finally:
        run.process.kill()
    assert run.left() == [] and run.process.returncode != 0 and not run.output.exists()


@pytest.fixture(scope="module")
def served(run_config: Callable[..., Any], folder: Path) -> dict[str, Path]:
    """Two trainings with a rollout server; one server is killed after a step, and the command given again."""
    settings: dict[str, Any] = {"runner": "ray", "server": True, "staleness": 0, "mini_batches": 1, "save_every": 1}
    started = [Running.start(run_config(name, **settings), folder) for name in ("left alone", "killed server")]
    try:
        wait_for(lambda: started[1].rows() > 2, seconds=300)
        started[1].kill("ray::HFServer")
        text, _ = started[1].process.communicate(timeout=120)
        assert started[1].process.returncode == 1 and started[1].left() == []
        assert re.search(r"^error: HFServer \(pid .* from its last restart point", text, re.M), text
        started.append(Running.start(run_config("killed server", **settings), folder))
        for run in (started[0], started[2]):
            run.finish()
            assert run.left() == []
    finally:
        for run in started:
            run.process.kill()
    return {run.output.name: run.output for run in started}


def test_a_training_whose_server_died_ends_in_the_same_bytes(served: dict[str, Path]) -> None:
    """So do two trainings with a server that are left alone: these are three processes that sampled apart."""
    killed, whole = served["killed server"], served["left alone"]
    assert (killed / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    expected = weights(whole)
    assert all(torch.equal(tensor, expected[name]) for name, tensor in weights(killed).items())


def test_a_server_samples_from_the_trainers_weights(served: dict[str, Path]) -> None:
    """definition: support and log-probs pass through verl's agent loop; pi is mu to rounding where nothing is stale.

    Not covered: equality with the other runners, whose tokens are seeded by batch and not by request.
    """
    steps = rows(served["left alone"])
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
def vllm_runs(run_config: Callable[..., Any], folder: Path) -> dict[str, Path]:
    """vLLM in one process and in Ray's worker, in int8; and verl's vLLM server, in float32. The two Rays at once."""
    int8 = {"rollout_engine": "vllm", "rollout_quantization": "int8_w8a8"}
    server = {"runner": "ray", "server": True, "rollout_engine": "vllm", "staleness": 0, "mini_batches": 1}
    started = [
        Running.start(run_config("vllm worker", runner="ray", **int8), folder),
        Running.start(run_config("vllm server", **server), folder),
    ]
    try:
        alone = Running.start(run_config("vllm", **int8), folder)
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

    Not covered: staleness (test_vllm_server.py), several ranks, equality with the other runners, whose seeds are
    others.
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
    assert worker["rollout"] == "methods.backend.ray.vllm_server.VLLMServerRollout"
