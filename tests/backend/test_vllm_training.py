"""definition and property: trainings with vLLM as rollout sample from the weights they say, and repeat to the byte.

Not covered here: the engine alone (test_vllm.py), Ray and verl's own vLLM server (test_ray.py, test_vllm_server.py).
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from methods.backend import launch
from methods.backend.rollout.sampling import Generation
from methods.backend.rollout.vllm_engine import InProcessEngine
from vllm_engines import gap, hf_model

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("vllm") is None, reason="vLLM is not installed here: make vllm"
)


@dataclass
class Run:
    """What a spy saw of a training: prompts and generations in order, and the published folder."""

    output: Path
    generations: list[tuple[bool, list[list[int]], Generation]] = field(default_factory=list)

    def rows(self) -> list[dict[str, float]]:
        return [json.loads(line)["data"] for line in (self.output / "metrics.jsonl").read_text().splitlines()]

    def gaps(self, start: Path) -> list[float]:
        """Per rollout: recorded log-probs against the exported checkpoint of the version it says it sampled from."""
        found = []
        for _, prompts, out in self.generations:
            folder = start if out.version == 0 else self.output / "checkpoints" / f"step_{out.version}"
            found.append(gap(hf_model(folder), prompts, out))
        return found


def train(tiny_world: Any, output: Path, **changes: Any) -> Run:
    from methods.backend.rollout.vllm_rollout import VLLMRollout

    seen, generate, patch = Run(output), VLLMRollout.generate, pytest.MonkeyPatch()

    def spy(self: Any, prompts: Any, step: int, validate: bool, temperature: float) -> Generation:
        out = generate(self, prompts, step, validate, temperature)
        seen.generations.append((validate, prompts, out))
        return out

    patch.setattr(VLLMRollout, "generate", spy)
    settings = {"rollout_engine": "vllm", "rollout_precision": "fp32", "save_every": 1, "export_every": 1, **changes}
    try:
        launch.train(tiny_world.run_config(output, **settings))
    finally:
        patch.undo()
    return seen


def test_a_training_samples_from_the_weights_it_says(tiny_world: Any, tmp_path: Path) -> None:
    """Three steps with staleness 1: training rollouts from the version of one sync ago, validation from the current
    one."""
    run = train(tiny_world, tmp_path / "run", staleness=1, validate_every=1)
    assert [(validate, out.version) for validate, _, out in run.generations] == [
        (True, 0), (False, 0), (True, 1), (False, 0), (True, 2), (False, 1), (True, 3),
    ]  # fmt: skip
    assert max(run.gaps(tiny_world.model)) <= 1e-4
    worker = json.loads((tmp_path / "run" / "manifest.json").read_text())["worker"]
    assert worker["rollout"].endswith("VLLMRollout") and worker["rollout_details"]["quantization"] == "none"
    assert all(row["updates/optimizer_steps"] == 2 for row in run.rows()[1:])


def test_at_the_first_step_pi_is_mu(tiny_world: Any, tmp_path: Path) -> None:
    """One mini-batch a step and no staleness: every metric is of weights that no update has touched, at every step."""
    run = train(tiny_world, tmp_path / "run", staleness=0, mini_batches=1)
    for row in run.rows()[1:]:
        assert row["gap/sampled_max"] <= 1e-4 and row["gap/topk_max"] <= 1e-4
        assert row["mask/fraction"] == 0 and abs(row["ratio/max"] - 1) < 1e-4


def test_a_reload_that_is_skipped_shows_in_a_training(
    tiny_world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted fault: the engine keeps the weights of its first load."""
    load, calls = InProcessEngine.load, []

    def only_once(self: Any, tensors: Any) -> None:
        calls.append(1)
        if len(calls) == 1:
            load(self, tensors)

    monkeypatch.setattr(InProcessEngine, "load", only_once)
    run = train(tiny_world, tmp_path / "run", staleness=0, mini_batches=1)
    gaps = run.gaps(tiny_world.model)
    assert max(gaps[:2]) <= 1e-4 and min(gaps[2:]) > 1e-2
    assert run.rows()[3]["gap/sampled_max"] > 1e-2


def test_an_interrupted_training_resumes_to_the_same_bytes(
    tiny_world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped in the rollout of step 3; the resumed run has an engine of its own, without the other's cache."""
    settings: dict[str, Any] = {"steps": 4, "staleness": 1, "validate_every": 2, "rollout_precision": "bf16"}
    train(tiny_world, tmp_path / "whole", **settings)
    sample, calls = InProcessEngine.sample, []

    def stopping(self: Any, *args: Any, **kwargs: Any) -> Generation:
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return sample(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(InProcessEngine, "sample", stopping)
        with pytest.raises(KeyboardInterrupt):
            train(tiny_world, tmp_path / "stopped", **settings)
    assert not (tmp_path / "stopped" / "manifest.json").exists()
    rest = train(tiny_world, tmp_path / "stopped", **settings)
    assert 0 < len([1 for validate, _, _ in rest.generations if not validate]) < 4
    whole, resumed = ((tmp_path / name / "metrics.jsonl").read_bytes() for name in ("whole", "stopped"))
    assert whole == resumed


def test_same_run_same_bytes(tiny_world: Any, tmp_path: Path) -> None:
    """Alone in a process, and in this one after the trainings above, bfloat16 with an fp8 cache; another seed not."""
    settings = {"rollout_engine": "vllm", "rollout_quantization": "fp8_kv"}
    config = tiny_world.run_config(tmp_path / "alone", **settings)
    done = subprocess.run(
        [sys.executable, "-m", "methods.backend.launch", "--json", json.dumps(config.dump())],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    launch.train(tiny_world.run_config(tmp_path / "here", **settings))
    launch.train(tiny_world.run_config(tmp_path / "other", seed=1, **settings))
    alone, here, other = ((tmp_path / name / "metrics.jsonl").read_bytes() for name in ("alone", "here", "other"))
    assert alone == here != other
