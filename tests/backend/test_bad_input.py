"""definition: bad input of each kind stops before training, with one message: field, value and what is allowed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from methods.backend import launch
from methods.backend.preflight import check
from methods.backend.recipe import Cell, CellError


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "drop"}, r"unknown method 'drop'; known are: .*drpo"),
        ({"options": {"delta": 0}}, r"method dppo_topk_kl: delta = 0: allowed is a finite number > 0"),
        ({"options": {"delta": -1.0}}, r"delta = -1.0"),
        ({"options": {"dleta": 0.1}}, r"unknown option 'dleta'; its options are: delta, ratio_cap"),
        ({"seed": -1}, r"seed = -1: allowed is an integer >= 0"),
        ({"lr": 0}, r"panel.lr = 0: allowed is a number > 0"),
        ({"steps": 2.5}, r"steps = 2.5: allowed is an integer >= 1"),
        ({"mini_batches": 3}, r"panel.mini_batches = 3: allowed is a divisor of panel.prompts = 8"),
        ({"micro_batch": 5}, r"panel.micro_batch = 5: allowed is a divisor of the mini-batch of 16"),
        ({"rollout_precision": "fp7"}, r"panel.rollout_precision = 'fp7': allowed are fp32, bf16"),
        ({"export_every": 2}, r"panel.export_every = 2"),
        ({"runner": "slurm"}, r"panel.runner = 'slurm': allowed are inprocess, ray"),
        ({"ranks": 2}, r"panel.ranks = 2: allowed is 1 unless panel.runner is 'ray'"),
        ({"server": True}, r"panel.server = True: allowed is False unless panel.runner is 'ray'"),
        ({"runner": "ray", "ranks": 3}, r"panel.ranks = 3: allowed is a divisor of the mini-batch of 16"),
        ({"runner": "ray", "ranks": 2, "micro_batch": 16}, r"panel.micro_batch = 16: .* 16 responses / 2 ranks"),
    ],
)
def test_bad_settings(changes: dict[str, Any], message: str, tiny_world: Any, tmp_path: Path) -> None:
    with pytest.raises(CellError, match=message):
        tiny_world.cell(tmp_path / "run", **changes)


def test_unknown_keys_are_named(tiny_world: Any, tmp_path: Path) -> None:
    raw = tiny_world.cell(tmp_path / "run").dump()
    with pytest.raises(CellError, match=r"panel.learning_rate: unknown key; allowed are .*\blr\b"):
        Cell.build({**raw, "panel": {**raw["panel"], "learning_rate": 1}})
    with pytest.raises(CellError, match=r"cell.sed: unknown key"):
        Cell.build({**raw, "sed": 1})


def test_missing_files_are_named(tiny_world: Any, tmp_path: Path) -> None:
    for name, value in (("model", "nowhere"), ("train_files", ["no.parquet"]), ("val_files", ["no.parquet"])):
        with pytest.raises(CellError, match=rf"{name} = (nowhere|no.parquet)"):
            check(tiny_world.cell(tmp_path / "run", **{name: value}))


def test_k_larger_than_the_vocabulary(tiny_world: Any, tmp_path: Path) -> None:
    with pytest.raises(CellError, match=r"panel.top_k = 46: allowed is 0 to the model's vocabulary size 45"):
        check(tiny_world.cell(tmp_path / "run", top_k=46))


def test_a_top_k_method_needs_k(tiny_world: Any, tmp_path: Path) -> None:
    """field case 55: refused before the first rollout, naming the option."""
    with pytest.raises(CellError, match=r"panel.top_k = 0: method dppo_topk_kl needs"):
        check(tiny_world.cell(tmp_path / "run", top_k=0))


def test_data_without_its_columns(tiny_world: Any, tmp_path: Path) -> None:
    path = tmp_path / "bad.parquet"
    pd.read_parquet(tiny_world.train).drop(columns=["reward_model"]).to_parquet(path)
    with pytest.raises(CellError, match=r"train_files = .*bad.parquet: column 'reward_model' is missing"):
        check(tiny_world.cell(tmp_path / "run", train_files=[str(path)]))
    path.write_text("not parquet")
    with pytest.raises(CellError, match=r"not a readable parquet file"):
        check(tiny_world.cell(tmp_path / "run", train_files=[str(path)]))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def compute_score(**kwargs):\n    raise KeyError('answer')\n", r"reward.py:compute_score: raised KeyError"),
        ("def score(**kwargs):\n    return 1\n", r"reward.py:compute_score: no function of that name"),
        ("import nothing_of_that_name\n", r"importing it raised ModuleNotFoundError"),
        ("def compute_score(**kwargs):\n    return 'good'\n", r"raised ValueError"),
    ],
)
def test_a_broken_reward_function(source: str, message: str, tiny_world: Any, tmp_path: Path) -> None:
    path = tmp_path / "reward.py"
    path.write_text(source)
    with pytest.raises(CellError, match=message):
        check(tiny_world.cell(tmp_path / "run", reward_function={"path": str(path)}))


def test_the_command_says_it_in_one_line_and_trains_nothing(tiny_world: Any, tmp_path: Path) -> None:
    raw = tiny_world.cell(tmp_path / "run").dump()
    path = tmp_path / "cell.json"
    path.write_text(json.dumps({**raw, "method": "drop"}))
    done = subprocess.run(
        [sys.executable, "-m", "methods.backend.launch", str(path)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert f"error: {path}: unknown method 'drop'" in done.stderr
    assert not (tmp_path / "run").exists() and not (tmp_path / "run.work").exists()


def test_a_worker_that_runs_something_else_is_refused(tiny_world: Any, tmp_path: Path) -> None:
    """field case 21: the report comes from the worker that computes the loss."""
    trainer = launch.build_trainer(tiny_world.cell(tmp_path / "run"))
    report = trainer.worker.report()
    with pytest.raises(RuntimeError, match=r"method: asked 'drpo', runs 'dppo_topk_kl'"):
        launch.verify(tiny_world.cell(tmp_path / "run", method="drpo"), report)


def test_fewer_optimiser_steps_than_mini_batches_stop_the_run(
    tiny_world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted fault: the engine skips every second step."""
    from methods.backend.engine import CPUEngine

    real, calls = CPUEngine.optimizer_step, []

    def skipping(self: Any) -> float:
        calls.append(1)
        return real(self) if len(calls) % 2 else 0.0

    monkeypatch.setattr(CPUEngine, "optimizer_step", skipping)
    with pytest.raises(RuntimeError, match=r"1 optimiser steps were taken in this update, 2 mini-batches were due"):
        launch.train(tiny_world.cell(tmp_path / "run"))
