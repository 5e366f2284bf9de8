"""property: the same run gives the same bytes, alone or after others in one process, killed and resumed or not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1 import replay_buffer, trainer_base
from verl.workers.engine_workers import TrainingWorker
from verl.workers.utils import losses, padding

from methods.backend import launch, mini_batches, replaced, trainer
from methods.backend.engine import CPUEngine
from methods.backend.run import folder as run_folder
from methods.backend.run import restart
from methods.backend.tokens.snapshot import Snapshot


def in_a_process_of_its_own(run: Any, folder: Path) -> subprocess.Popen[bytes]:
    path = folder / f"{Path(run.output).name}.json"
    path.write_text(json.dumps(run.dump()))
    return subprocess.Popen(
        [sys.executable, "-m", "methods.backend.launch", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def results(output: Path) -> tuple[bytes, dict[str, torch.Tensor]]:
    weights = load_file(sorted((output / "checkpoints").iterdir())[-1] / "model.safetensors")
    return (output / "metrics.jsonl").read_bytes(), weights


def test_same_seed_same_bytes_other_seed_other_bytes(tiny_world: Any, tmp_path: Path) -> None:
    """The first run is a process of its own, the others share this one: sharing leaves no trace."""
    alone = in_a_process_of_its_own(tiny_world.run_config(tmp_path / "alone"), tmp_path)
    out, _ = alone.communicate(timeout=300)
    assert alone.returncode == 0, out.decode()
    launch.train(tiny_world.run_config(tmp_path / "other", seed=1))
    launch.train(tiny_world.run_config(tmp_path / "shared"))
    metrics, weights = results(tmp_path / "alone")
    shared_metrics, shared_weights = results(tmp_path / "shared")
    assert shared_metrics == metrics
    assert all(torch.equal(weights[name], shared_weights[name]) for name in weights)
    assert results(tmp_path / "other")[0] != metrics


def test_a_killed_run_resumes_to_the_same_end(tiny_world: Any, tmp_path: Path) -> None:
    """SIGKILL after step 4 of 8 with restart points every 3 steps; then equal bytes, no row doubled or lost."""
    settings = {"steps": 8, "save_every": 3, "validate_every": 2, "staleness": 2}
    launch.train(tiny_world.run_config(tmp_path / "whole", **settings))
    run = tiny_world.run_config(tmp_path / "killed", **settings)
    killed = in_a_process_of_its_own(run, tmp_path)
    log = run.work_dir / "metrics.jsonl"
    deadline = time.monotonic() + 240
    while not (log.exists() and len(log.read_text().splitlines()) >= 5):
        assert killed.poll() is None and time.monotonic() < deadline, "the run ended before it could be killed"
        time.sleep(0.005)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    assert not (tmp_path / "killed" / "manifest.json").exists()
    launch.train(run)
    assert results(tmp_path / "killed")[0] == results(tmp_path / "whole")[0]
    weights, expected = results(tmp_path / "killed")[1], results(tmp_path / "whole")[1]
    assert all(torch.equal(weights[name], expected[name]) for name in expected)


def test_other_settings_never_resume_from_an_old_run(tiny_world: Any, tmp_path: Path) -> None:
    """The work of an interrupted run with another configuration is moved aside."""
    run_folder.prepare_work(tiny_world.run_config(tmp_path / "run", lr=1e-3))
    (tmp_path / "run.work" / "metrics.jsonl").write_text("old")
    run_folder.prepare_work(tiny_world.run_config(tmp_path / "run", lr=2e-3))
    assert not (tmp_path / "run.work" / "metrics.jsonl").exists()
    assert (tmp_path / "run.work.superseded" / "metrics.jsonl").read_text() == "old"


def test_a_snapshot_around_an_update_leaves_no_trace(tiny_world: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """A probe steps the optimiser, draws random numbers and restores, before every real step."""
    launch.train(tiny_world.run_config(tmp_path / "plain"))
    probed: list[float] = []
    setup = trainer.InProcessTrainer._setup

    def probe(engine: Any) -> None:
        snapshot = Snapshot.capture(engine)
        before = [p.detach().clone() for p in engine.module.parameters()]
        engine.optimizer.step()
        engine.lr_scheduler.step()
        torch.rand(3)
        after = [p.detach() for p in engine.module.parameters()]
        moved = max(float((p - b).abs().max()) for p, b in zip(after, before, strict=True))
        snapshot.restore(engine)
        assert all(torch.equal(p, b) for p, b in zip(engine.module.parameters(), before, strict=True))
        probed.append(moved)

    def with_probe(self: Any) -> None:
        setup(self)
        self.worker.actor.engine.before_optimizer_step.append(probe)

    monkeypatch.setattr(trainer.InProcessTrainer, "_setup", with_probe)
    launch.train(tiny_world.run_config(tmp_path / "probed"))
    assert len(probed) == 3 * 2 and min(probed) > 0
    assert results(tmp_path / "probed")[0] == results(tmp_path / "plain")[0]


# One of each kind of need: sampled log-probs, top K, collision mass, whole vocabulary, anchor, random numbers, and a
# penalty to a reference; then responses that differ in length within a mini-batch.
@pytest.mark.parametrize(
    "settings",
    [
        {"method": "grpo", "top_k": 0},
        {"method": "dppo_topk_kl"},
        {"method": "predictive"},
        {"method": "predictive", "options": {"tail": "full"}, "top_k": 45},
        {"method": "minirl"},
        {"method": "predictive_random"},
        {"method": "dppo_topk_tv", "reference_kl": 0.1},
        {"method": "gspo", "response_length": 6},
    ],
    ids=str,
)
def test_padded_mini_batches_equal_verls_own(
    settings: dict[str, Any], tiny_world: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    """conformance: our step, alone and padded, against FSDP2 and verl's row-by-row mini-batches, bit by bit."""
    settings = {"mini_batches": 4, "steps": 2, "validate_every": 0, **settings}
    taken: list[bool] = []
    padded = mini_batches.takes_padded

    def spy(*args: Any) -> bool:
        taken.append(padded(*args))
        return taken[-1]

    with monkeypatch.context() as patch:
        patch.setattr(mini_batches, "takes_padded", spy)
        launch.train(tiny_world.run_config(tmp_path / "padded", **settings))
    assert taken == [True, True]
    as_verl_does(monkeypatch)
    monkeypatch.setattr(mini_batches.TetherTrainingWorker, "train_mini_batch", TrainingWorker.train_mini_batch)
    launch.train(tiny_world.run_config(tmp_path / "verl", **settings))
    assert results(tmp_path / "padded")[0] == results(tmp_path / "verl")[0]
    ours, verls = results(tmp_path / "padded")[1], results(tmp_path / "verl")[1]
    assert all(torch.equal(ours[name], verls[name]) for name in verls)


def test_sliced_mini_batches_equal_verls_own(tiny_world: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """conformance: the same of jagged slices, which take the place of padded ones under several micro-batches."""
    settings = {"mini_batches": 4, "micro_batch": 4, "steps": 2}
    launch.train(tiny_world.run_config(tmp_path / "sliced", **settings))
    as_verl_does(monkeypatch)
    monkeypatch.setattr(mini_batches.TetherTrainingWorker, "train_mini_batch", TrainingWorker.train_mini_batch)
    launch.train(tiny_world.run_config(tmp_path / "verl", **settings))
    assert results(tmp_path / "sliced")[0] == results(tmp_path / "verl")[0]


def as_verl_does(patch: pytest.MonkeyPatch) -> None:
    """A lone rank under FSDP2, and verl's own names."""
    patch.setattr(CPUEngine, "_alone", lambda self: False)
    patch.setattr(replaced, "same_version", lambda: False)
    patch.setattr(losses, "no_padding_2_padding", padding.no_padding_2_padding)
    patch.setattr(trainer_base, "response_to_nested", padding.response_to_nested)
    for module in (trainer_base, replay_buffer):
        patch.setattr(module, "KVBatchMeta", KVBatchMeta)


def test_a_run_begun_under_fsdp2_goes_on_without_it(tiny_world: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """Checkpoints of earlier releases hold DTensors, in weights and optimiser; they load, and the end is the same."""
    settings = {"steps": 4, "save_every": 2, "staleness": 2}
    launch.train(tiny_world.run_config(tmp_path / "whole", **settings))
    run = tiny_world.run_config(tmp_path / "begun", **settings)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        as_verl_does(patch)
        seal = restart.seal

        def stop(checkpoint: Path) -> None:
            seal(checkpoint)
            raise KeyboardInterrupt

        patch.setattr(restart, "seal", stop)
        launch.train(run)
    written = sorted(run.work_dir.glob("verl/global_step_2/actor/*.pt"))
    assert any("DTensor" in repr(torch.load(path, weights_only=False)) for path in written)
    launch.train(run)
    assert results(tmp_path / "begun")[0] == results(tmp_path / "whole")[0]
    weights, expected = results(tmp_path / "begun")[1], results(tmp_path / "whole")[1]
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
