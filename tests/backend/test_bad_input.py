"""definition: bad input of each kind stops before training, with one message: field, value and what is allowed."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from methods.backend import launch
from methods.backend.compose import build_trainer, verify
from methods.backend.rollout.engines import vllm_problem
from methods.backend.run.checks import check
from methods.backend.run_config import RunConfig
from methods.backend.setting import ConfigError


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "drop"}, r"unknown method 'drop'; known are: .*drpo"),
        ({"options": {"delta": 0}}, r"method dppo_topk_kl: delta = 0: allowed is a finite number > 0"),
        ({"options": {"delta": -1.0}}, r"delta = -1.0"),
        ({"options": {"dleta": 0.1}}, r"unknown option 'dleta'; its options are: delta, ratio_cap"),
        ({"seed": -1}, r"seed = -1: allowed is an integer >= 0"),
        ({"lr": 0}, r"setting.lr = 0: allowed is a finite number > 0"),
        ({"reference_kl": -0.1}, r"setting.reference_kl = -0.1: allowed is a finite number >= 0"),
        ({"steps": 2.5}, r"steps = 2.5: allowed is an integer >= 1"),
        ({"mini_batches": 3}, r"setting.mini_batches = 3: allowed is a divisor of setting.prompts = 8"),
        ({"micro_batch": 5}, r"setting.micro_batch = 5: allowed is a divisor of the mini-batch of 16"),
        ({"rollout_precision": "fp7"}, r"setting.rollout_precision = 'fp7': allowed are fp32, bf16, fp16, fp8, int8"),
        ({"train_precision": "int8"}, r"setting.train_precision = 'int8': allowed are fp32, bf16, fp16, fp8, fp8_bf16"),
        ({"export_every": 2}, r"setting.export_every = 2"),
        ({"rollout_engine": "sglang"}, r"setting.rollout_engine = 'sglang': allowed are hf, vllm"),
        (
            {"rollout_quantization": "fp8_kv"},
            r"setting.rollout_quantization = 'fp8_kv': allowed with rollout_engine = 'vllm'",
        ),
        (
            {"rollout_engine": "vllm", "rollout_quantization": "fp8_weights", "rollout_precision": "fp32"},
            r"'fp8_weights': allowed with rollout_precision = 'bf16' only, not 'fp32'",
        ),
        (
            {"rollout_engine": "vllm", "rollout_quantization": "int8_per_channel_weight_only"},
            r"refused, vLLM quantises experts only .*; allowed are none, fp8_kv, fp8_weights, int8_w8a8",
        ),
        ({"rollout_engine": "vllm", "rollout_quantization": "fp4"}, r"'fp4': allowed are none, fp8_kv, fp8_weights"),
        ({"runner": "slurm"}, r"setting.runner = 'slurm': allowed are inprocess, ray"),
        ({"ranks": 2}, r"setting.ranks = 2: allowed is 1 unless setting.runner is 'ray'"),
        ({"server": True}, r"setting.server = True: allowed is False unless setting.runner is 'ray'"),
        ({"runner": "ray", "ranks": 3}, r"setting.ranks = 3: allowed is a divisor of the mini-batch of 16"),
        ({"runner": "ray", "ranks": 2, "micro_batch": 16}, r"setting.micro_batch = 16: .* 16 responses / 2 ranks"),
    ],
)
def test_bad_settings(changes: dict[str, Any], message: str, tiny_world: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        tiny_world.run_config(tmp_path / "run", **changes)


def test_unknown_keys_are_named(tiny_world: Any, tmp_path: Path) -> None:
    raw = tiny_world.run_config(tmp_path / "run").dump()
    with pytest.raises(ConfigError, match=r"setting.learning_rate: unknown key; allowed are .*\blr\b"):
        RunConfig.build({**raw, "setting": {**raw["setting"], "learning_rate": 1}})
    with pytest.raises(ConfigError, match=r"run.sed: unknown key"):
        RunConfig.build({**raw, "sed": 1})


def test_missing_files_are_named(tiny_world: Any, tmp_path: Path) -> None:
    for name, value in (("model", "nowhere"), ("train_files", ["no.parquet"]), ("val_files", ["no.parquet"])):
        with pytest.raises(ConfigError, match=rf"{name} = (nowhere|no.parquet)"):
            check(tiny_world.run_config(tmp_path / "run", **{name: value}))


def test_k_larger_than_the_vocabulary(tiny_world: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"setting.top_k = 46: allowed is 0 to the model's vocabulary size 45"):
        check(tiny_world.run_config(tmp_path / "run", top_k=46))


def test_a_missing_vllm_is_one_message(tiny_world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        ConfigError, match=r"setting.rollout_engine = 'vllm': vLLM is not installed .*`make vllm` adds it"
    ):
        check(tiny_world.run_config(tmp_path / "run", rollout_engine="vllm"))


def test_a_head_size_that_vllm_cannot_serve_is_refused(
    tiny_world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM itself would take it and die at the first token."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    model = shutil.copytree(tiny_world.model, tmp_path / "model")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "head_dim": 16}))
    message = r"the model's head size is 16, vLLM's CPU attention allows 32, 64, "
    with pytest.raises(ConfigError, match=message):
        check(tiny_world.run_config(tmp_path / "run", rollout_engine="vllm", model=str(model)))
    # An architecture without a head_dim of its own.
    assert re.search(message, vllm_problem({"hidden_size": 64, "num_attention_heads": 4}, installed=True) or "")


def test_experts_with_vllm_are_refused(tiny_world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They would train, with a rollout policy that is not the trainer's (test_vllm_precision.py holds the reason)."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    model = shutil.copytree(tiny_world.model, tmp_path / "model")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "num_experts": 4}))
    with pytest.raises(ConfigError, match=r"'vllm': vLLM reloads experts wrongly on a CPU; allowed is a dense model"):
        check(tiny_world.run_config(tmp_path / "run", rollout_engine="vllm", model=str(model)))


def test_a_top_k_method_needs_k(tiny_world: Any, tmp_path: Path) -> None:
    """field case 55: refused before the first rollout, naming the option."""
    with pytest.raises(ConfigError, match=r"setting.top_k = 0: method dppo_topk_kl needs"):
        check(tiny_world.run_config(tmp_path / "run", top_k=0))


def test_data_without_its_columns(tiny_world: Any, tmp_path: Path) -> None:
    path = tmp_path / "bad.parquet"
    pd.read_parquet(tiny_world.train).drop(columns=["reward_model"]).to_parquet(path)
    with pytest.raises(ConfigError, match=r"train_files = .*bad.parquet: column 'reward_model' is missing"):
        check(tiny_world.run_config(tmp_path / "run", train_files=[str(path)]))
    path.write_text("not parquet")
    with pytest.raises(ConfigError, match=r"not a readable parquet file"):
        check(tiny_world.run_config(tmp_path / "run", train_files=[str(path)]))


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("prompt", "1 2 3", r"row 3: prompt = '1 2 3': allowed is a list of messages"),
        (
            "prompt",
            [{"role": "user", "content": "1 2 3 4 5 6 7"}],
            r"row 3: prompt has 9 tokens, setting.prompt_length = 5",
        ),
        ("reward_model", "1 2 3", r"row 3: reward_model = '1 2 3': allowed is an object with ground_truth"),
    ],
)
def test_every_row_is_looked_at(column: str, value: Any, message: str, tiny_world: Any, tmp_path: Path) -> None:
    frame = pd.read_parquet(tiny_world.train)
    rows = frame.to_dict("records")
    if isinstance(value, str):
        for row in rows:  # a parquet column has one type
            row[column] = value if row is rows[3] else str(row[column])
        message = message.replace("row 3", "row 0").split("'1 2 3'")[0]
    else:
        rows[3][column] = value
    pd.DataFrame(rows).to_parquet(tmp_path / "bad.parquet")
    with pytest.raises(ConfigError, match=message):
        check(tiny_world.run_config(tmp_path / "run", train_files=[str(tmp_path / "bad.parquet")]))


def test_more_prompts_than_rows(tiny_world: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"setting.prompts = 66: allowed is at most the 64 rows of train_files"):
        check(tiny_world.run_config(tmp_path / "run", prompts=66))


def test_a_recomputed_anchor_is_refused(tiny_world: Any, tmp_path: Path) -> None:
    overrides = ["algorithm.rollout_correction.bypass_mode=False"]
    with pytest.raises(ConfigError, match=r"bypass_mode = False: allowed is True"):
        launch.train(tiny_world.run_config(tmp_path / "run", overrides=overrides))


def test_truncated_sampling_is_refused(tiny_world: Any, tmp_path: Path) -> None:
    """field case 29."""
    with pytest.raises(ValueError, match=r"rollout.top_p = 0.9: truncated sampling biases every ratio"):
        launch.train(tiny_world.run_config(tmp_path / "run", overrides=["actor_rollout_ref.rollout.top_p=0.9"]))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "def compute_score(solution_str, **_):\n    return float(solution_str.split()[2])\n",
            r"the response 'no answer'",
        ),
        ("def compute_score(**_):\n    return float('nan')\n", r"gave nan for the response"),
        ("def compute_score(**kwargs):\n    raise KeyError('answer')\n", r"reward.py:compute_score: raised KeyError"),
        ("def score(**kwargs):\n    return 1\n", r"reward.py:compute_score: no function of that name"),
        ("import nothing_of_that_name\n", r"importing it raised ModuleNotFoundError"),
        ("def compute_score(**kwargs):\n    return 'good'\n", r"raised ValueError"),
    ],
)
def test_a_broken_reward_function(source: str, message: str, tiny_world: Any, tmp_path: Path) -> None:
    path = tmp_path / "reward.py"
    path.write_text(source)
    with pytest.raises(ConfigError, match=message):
        check(tiny_world.run_config(tmp_path / "run", reward_function={"path": str(path)}))


def test_the_command_says_it_in_one_line_and_trains_nothing(tiny_world: Any, tmp_path: Path) -> None:
    raw = tiny_world.run_config(tmp_path / "run").dump()
    path = tmp_path / "run.json"
    path.write_text(json.dumps({**raw, "method": "drop"}))
    done = subprocess.run(
        [sys.executable, "-m", "methods.backend.launch", str(path)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert f"error: {path}: unknown method 'drop'" in done.stderr
    assert not (tmp_path / "run").exists() and not (tmp_path / "run.work").exists()


def test_a_worker_that_runs_something_else_is_refused(tiny_world: Any, tmp_path: Path) -> None:
    """field case 21: the report comes from the worker that computes the loss."""
    trainer = build_trainer(tiny_world.run_config(tmp_path / "run"))
    report = trainer.worker.report()
    with pytest.raises(RuntimeError, match=r"method: asked 'drpo', runs 'dppo_topk_kl'"):
        verify(tiny_world.run_config(tmp_path / "run", method="drpo"), report)


def test_a_foreign_loss_and_foreign_options_are_noticed(tiny_world: Any, tmp_path: Path) -> None:
    """Planted: another function under our name; options that an override changed behind the run's back."""
    from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY

    def foreign(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("never reached")

    foreign.tether_method = "drpo"  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(POLICY_LOSS_REGISTRY, "drpo", foreign)
        with pytest.raises(RuntimeError, match="loss_function: asked 'methods.backend.loss.drpo_policy_loss'"):
            launch.train(tiny_world.run_config(tmp_path / "run", method="drpo"))
    overrides = ["actor_rollout_ref.actor.policy_loss.options.delta=9"]
    run = tiny_world.run_config(tmp_path / "run", method="drpo", options={"delta": 0.15}, overrides=overrides)
    with pytest.raises(RuntimeError, match="options: asked .*0.15.*runs .*9"):
        launch.train(run)


def test_a_settings_settings_reach_optimiser_and_loss(tiny_world: Any, tmp_path: Path) -> None:
    """Read back from the worker that trains, not from the configuration."""
    run = tiny_world.run_config(tmp_path / "run", lr=3e-4, weight_decay=0.25, clip_grad=0.5, warmup_steps=2)
    worker = build_trainer(run).worker
    engine, config = worker.actor.engine, worker.support_loss.config
    (group,) = engine.optimizer.param_groups
    assert (
        group["initial_lr"] == 3e-4 and group["weight_decay"] == 0.25 and group["lr"] == 1.5e-4
    )  # the first of two steps of warm-up
    assert engine.optimizer_config.clip_grad == 0.5
    assert config.loss_scale_factor == run.setting.response_length
    assert config.loss_agg_mode == "seq-mean-token-sum-norm" and config.entropy_coeff == 0


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
        launch.train(tiny_world.run_config(tmp_path / "run"))
