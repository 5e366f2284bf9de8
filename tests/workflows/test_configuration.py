"""workflow: a bad configuration stops before any job, with file, field, value and what is allowed."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from methods import registry
from tiny_project import CONFIG, ROOT, Project, own_model
from workflows.grid import Grid, GridError


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c.update(metods={}), ["metods"]),
        (lambda c: c["settings"]["T"].update(learning_rate=1), ["learning_rate"]),
        (lambda c: c["settings"]["T"].update(lr=-1), ["settings.T.lr", "-1"]),
        (lambda c: c["settings"]["T"].update(lr="1e-4"), ["settings.T.lr", "'1e-4' is not of type 'number'", "1.0e-4"]),
        (lambda c: c["settings"]["T"].update(steps=True), ["settings.T.steps", "True is not of type 'integer'"]),
        (lambda c: c.update(reference="ppo"), ["reference = 'ppo'", "dppo_topk_kl, drpo_small"]),
        (lambda c: c["scoring"].update(problems=17), ["scoring.problems = 17", "sort_3_40.test_prompts = 16"]),
        (lambda c: c["methods"].update({True: None}), ["methods: the name True is no text"]),
        (lambda c: c.update(tier="reference"), ["tier", "reference"]),
        (lambda c: c["settings"]["T"].update(lr=float("inf")), ["settings.T.lr = inf", "finite number"]),
        (lambda c: c.update(trackers=["mlflow"]), ["trackers", "'mlflow'", "tensorboard"]),
        (lambda c: c.update(mismatch={"engines": ["sglang"]}), ["mismatch.engines[0]", "'sglang'", "'hf', 'vllm'"]),
        (lambda c: c["settings"]["T"].update(top_k=99), ["top_k = 99", "vocabulary size 45"]),
        (lambda c: c["settings"]["T"].update(mini_batches=3), ["mini_batches = 3", "divisor", "prompts = 4"]),
        (
            lambda c: c["methods"].update(predictive={"options": {"tail": "full"}}),
            ["settings.T.top_k = 5", "its size 45"],
        ),
        (
            lambda c: c["settings"]["T"].update(mini_batches=1) or c["methods"].update(minirl={}),
            ["settings.T, methods.minirl", "setting.mini_batches = 1", "recomputed anchor"],
        ),
        (
            lambda c: c["settings"]["T"].update(micro_batch=2) or c["methods"].update(sat={}),
            ["methods.sat: setting.micro_batch = 2", "whole mini-batch of 8"],
        ),
        (lambda c: c["settings"]["T"].update(world="sort"), ["settings.T.world = 'sort'", "sort_3_40"]),
        (lambda c: c["methods"].update(drop=None), ["methods.drop", "unknown method 'drop'", "dppo_topk_kl, "]),
        (lambda c: c["methods"]["drpo_small"].update(options={"delta": 0}), ["delta = 0", "number > 0"]),
        (lambda c: c["methods"]["drpo_small"].update(options={"detla": 1}), ["unknown option 'detla'", "delta"]),
        (lambda c: c["grid"][0].update(methods=["ppo"]), ["grid[0].methods = 'ppo'", "dppo_topk_kl"]),
        (lambda c: c["grid"][0].update(settings=["U"]), ["grid[0].settings = 'U'", "allowed are the names"]),
        (lambda c: c["grid"][0].update(seeds=[-1]), ["seeds", "-1"]),
        (lambda c: c["settings"]["T"].update(model_path="x"), ["both 'world' and 'model_path'"]),
        (lambda c: c["settings"]["T"].update(train_precision="int8"), ["train_precision", "int8", "fp8_bf16"]),
        (lambda c: c["models"]["xs"].update(kind="llama"), ["models.xs.kind", "llama", "qwen3_moe"]),
        (lambda c: c["models"]["xs"].update(experts=2, experts_per_token=3), ["experts_per_token = 3", "1 to", "= 2"]),
    ],
)
def test_bad_configurations(change: Callable[[dict[str, Any]], None], words: list[str]) -> None:
    config = copy.deepcopy(CONFIG)
    change(config)
    with pytest.raises(GridError) as raised:
        Grid.check(config, "bad.yaml")
    for word in ["bad.yaml: ", *words]:
        assert word in str(raised.value)


def test_a_method_that_cannot_run_stops_the_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a small batch, before any job; faults that it shows only elsewhere are `python -m methods check`'s."""
    registry.load_catalogue()
    monkeypatch.setattr(registry, "_METHODS", dict(registry._METHODS))
    broken = registry.register("broken", title="Broken", source="none", mark="N")
    broken(lambda signals, config: signals.advantages[:, :1])
    config = copy.deepcopy(CONFIG)
    config["methods"]["mine"] = {"method": "broken"}
    with pytest.raises(GridError, match=r"bad.yaml: methods.mine: method broken returned .*`python -m methods check b"):
        Grid.check(config, "bad.yaml")


def test_an_engine_of_the_mismatch_figure_is_asked_for_where_the_figure_is() -> None:
    """A tier may name vLLM where it is not installed, as long as nobody asks for the figure; hf needs nothing."""
    for engines in (["hf"], ["hf", "vllm"]):
        grid = Grid.check({**copy.deepcopy(CONFIG), "mismatch": {"engines": engines}}, "bad.yaml")
        grid.check_engines(vllm=True)
    with pytest.raises(GridError, match="bad.yaml: mismatch.engines = 'vllm': vLLM is not installed .*`make vllm`"):
        grid.check_engines(vllm=False)
    Grid.check(copy.deepcopy(CONFIG), "bad.yaml").check_engines(vllm=False)


def test_the_shipped_tiers_are_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tier `real` once `make real` has made its model and prompts, which only have to be there for this check."""
    source = tmp_path / "results" / "real" / "source"
    (source / "model").mkdir(parents=True)
    (source / "model" / "config.json").write_text('{"model_type": "llama"}')
    for name in ("model.safetensors", "tokenizer.json"):
        (source / "model" / name).touch()
    (tmp_path / "workflows").symlink_to(ROOT / "workflows")
    for name in ("train.parquet", "test.parquet"):
        (source / name).touch()
    monkeypatch.chdir(tmp_path)
    for path in (ROOT / "workflows" / "config").glob("*.yaml"):
        grid = Grid.check(yaml.safe_load(path.read_text()), path.name)
        assert grid.keys() or grid.token_runs()
    monkeypatch.chdir(ROOT / "tests")
    with pytest.raises(GridError, match="settings.bf16.model_path = results/real/source/model: no such file"):
        Grid.check(yaml.safe_load((ROOT / "workflows" / "config" / "real.yaml").read_text()), "real.yaml")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda c: c["settings"]["T"].update(learning_rate=1),
            ["bad.yaml: settings.T", "learning_rate", "allowed are"],
        ),
        (lambda c: c["methods"].update(drop=None), ["bad.yaml", "unknown method 'drop'", "dppo_topk_kl, "]),
    ],
)
def test_snakemake_stops_before_any_job(
    change: Callable[[dict[str, Any]], None], words: list[str], project: Project
) -> None:
    config = copy.deepcopy(CONFIG)
    change(config)
    project.write_config(config, "bad.yaml")
    done = project.attempt("--dry-run", config="bad.yaml")
    assert done.returncode != 0 and "Traceback" not in done.stdout and "Job stats" not in done.stdout
    for word in words:
        assert word in done.stdout, done.stdout


def test_a_users_own_model_data_and_reward_train_through_the_pipeline(
    project: Project, tiny_world: Any, tmp_path: Path
) -> None:
    """Without an lm-eval task the setting is trained and reported, not scored. One run, for real.

    Afterwards each of two files of the model that hold no weights is changed, and the training is due again (R2-7).
    """
    config = copy.deepcopy(CONFIG)
    model = tmp_path / "model"
    shutil.copytree(tiny_world.model, model)
    own_model(config, tiny_world, model_path=str(model))
    config |= {"tier": "own", "worlds": {}, "models": {}, "grid": [{"settings": ["T"], "seeds": [0]}]}
    config["methods"] = {"drpo": {}}
    project.write_config(config, "own.yaml")
    target = "results/own/runs/setting~T/variant~drpo/seed~0/manifest.json"
    project.snakemake(target, config="own.yaml")
    assert (project.root / target).exists()
    plan = project.planned(config="own.yaml")
    assert "score" not in plan and "world" not in plan and "train" not in plan and plan["report"] == 1
    for name in ("chat_template.jinja", "generation_config.json"):
        before = (model / name).read_bytes()
        (model / name).write_bytes(before + b"\n")
        assert project.planned(target, config="own.yaml") == {"train": 1}, name
        (model / name).write_bytes(before)
    assert project.planned(target, config="own.yaml") == {}


def test_missing_files_of_a_user_are_named(tiny_world: Any) -> None:
    for name, value in (("model_path", "no/model"), ("train_files", ["no.parquet"])):
        config = copy.deepcopy(CONFIG)
        own_model(config, tiny_world, **{name: value})
        with pytest.raises(GridError, match=rf"bad.yaml: settings.T.{name} = no.*: no such file or directory"):
            Grid.check(config, "bad.yaml")


def test_a_mixture_in_fp8_end_to_end_is_scored_as_it_was_trained(project: Project) -> None:
    """From warm start to score through Snakemake, one run; the start is scored in the same precision."""
    config = copy.deepcopy(CONFIG)
    config |= {"tier": "fp8", "methods": {"drpo": {}}, "grid": [{"settings": ["T"], "seeds": [0]}]}
    config["models"]["xs"] |= {"kind": "qwen3_moe", "experts": 4}
    config["settings"]["T"] |= {"train_precision": "fp8", "rollout_precision": "fp8"}
    project.write_config(config, "fp8.yaml")
    run = "setting~T/variant~drpo/seed~0"
    project.snakemake(f"results/fp8/scores/{run}.json", config="fp8.yaml")
    scores = json.loads((project.root / f"results/fp8/scores/{run}.json").read_text())
    assert scores["quantise"] == "fp8" and [entry["step"] for entry in scores["checkpoints"]] == [0, 3]
    assert "trained with" not in (project.root / f"results/fp8/logs/score/{run}.log").read_text()
    manifest = json.loads((project.root / f"results/fp8/runs/{run}/manifest.json").read_text())
    assert manifest["worker"]["train_precision"]["quantise"] == "fp8"
