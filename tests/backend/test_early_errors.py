"""definition: what a training, a scoring or verl would refuse late is refused before a job, in one line with its name.

Not covered: what only the weights can show, such as a checkpoint whose values are no numbers.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from methods.backend.compose import build_trainer, compose
from methods.backend.rollout.engines import FREE_FORM, refuse_unknown, vllm_problem
from methods.backend.run import model_check
from methods.backend.run.checks import check
from methods.backend.run_config import RunConfig
from methods.backend.setting import ConfigError
from workflows.grid import Grid, GridError


def edited(model: Path, folder: Path, **settings: Any) -> Path:
    """A copy of a model's folder whose config.json has other settings; None takes one out."""
    copy = shutil.copytree(model, folder)
    # Another architecture's settings are its defaults, not Qwen3's.
    config = {} if "model_type" in settings else json.loads((copy / "config.json").read_text())
    config |= settings
    kept = {name: value for name, value in config.items() if value is not None}
    (copy / "config.json").write_text(json.dumps(kept))
    return copy


def remove(*names: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return damage


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (shutil.rmtree, r": no such folder"),
        (remove("config.json"), r": no config.json there"),
        (remove("model.safetensors"), r": no weights there; allowed is one of \*.safetensors"),
        (remove("tokenizer.json", "tokenizer_config.json"), r": no tokenizer there"),
        (lambda folder: (folder / "config.json").write_text("{"), r"config.json: no JSON"),
        (lambda folder: (folder / "config.json").write_text("{}"), r"config.json: it names no model_type"),
        (lambda folder: (folder / "model.safetensors").write_text("x"), r"not readable as safetensors"),
    ],
)
def test_a_folder_that_is_no_models(
    damage: Callable[[Path], Any], message: str, tiny_world: Any, tmp_path: Path
) -> None:
    model = shutil.copytree(tiny_world.model, tmp_path / "model")
    damage(model)
    with pytest.raises(ConfigError, match=f"model = {re.escape(str(model))}.*{message}"):
        check(tiny_world.run_config(tmp_path / "run", model=str(model)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"model_type": "gpt2"},
            r"model_type = 'gpt2': an architecture without num_key_value_heads.*known to work:.*Qwen",
        ),
        ({"model_type": "gpt_neox"}, r"model_type = 'gpt_neox': an architecture without num_key_value_heads"),
        ({"model_type": "mamba"}, r"model_type = 'mamba': no causal language model with a key-value cache"),
        ({"model_type": "t5"}, r"model_type = 't5': no causal language model"),
        ({"model_type": "newest"}, r"transformers does not know the model"),
        ({"quantization_config": {"quant_method": "gptq"}}, r"quantization_config: the weights are quantised"),
        ({"vocab_size": 50}, r"embed_tokens.weight has 45 rows, config.json says vocab_size = 50"),
    ],
)
def test_a_model_that_cannot_be_trained(
    settings: dict[str, Any], message: str, tiny_world: Any, tmp_path: Path
) -> None:
    model = edited(tiny_world.model, tmp_path / "model", **settings)
    with pytest.raises(ConfigError, match=message):
        check(tiny_world.run_config(tmp_path / "run", model=str(model)))


@pytest.mark.parametrize("kind", ["llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "gemma2", "olmo2"])
def test_architectures_that_are_named_as_trainable_pass(kind: str, tiny_world: Any, tmp_path: Path) -> None:
    """By their parts. Not: a training of each; that of Qwen3, dense and mixed, is in test_training and test_experts."""
    model = edited(tiny_world.model, tmp_path / "model", model_type=kind, vocab_size=45)
    assert model_check.model_settings(model)["vocab_size"] == 45


@pytest.mark.parametrize("name", model_check.POSITIONS)
def test_prompt_and_response_have_to_fit_the_positions(name: str) -> None:
    """Whatever the architecture calls them, also in a text part; a config that does not say is left to the model."""
    message = r"prompt_length \+ response_length = 5 \+ 60 = 65: allowed is at most the model's 64 positions"
    for config in ({name: 64}, {"text_config": {name: 64}}, {name: 64, "rope_scaling": {"factor": 4.0}}):
        assert model_check.length_problem(config, 5, 59) is None
        assert re.fullmatch(message, model_check.length_problem(config, 5, 60) or "")
    assert model_check.length_problem({}, 10**6, 1) is None


def test_positions_are_checked_before_a_job(tiny_world: Any, tmp_path: Path) -> None:
    limit = json.loads((tiny_world.model / "config.json").read_text())["max_position_embeddings"]
    with pytest.raises(
        ConfigError, match=rf"setting.prompt_length \+ .*: allowed is at most the model's {limit} positions"
    ):
        check(tiny_world.run_config(tmp_path / "run", response_length=limit - 4))
    check(tiny_world.run_config(tmp_path / "run", response_length=limit - 5))


@pytest.mark.parametrize("name", model_check.EXPERTS)
def test_every_name_of_experts_is_refused_with_vllm(name: str) -> None:
    dense = {"hidden_size": 64, "num_attention_heads": 2}
    assert vllm_problem(dense, installed=True) is None
    assert "allowed is a dense model" in (vllm_problem({**dense, name: 4}, installed=True) or "")


def test_a_model_without_end_or_padding(tiny_world: Any, tmp_path: Path) -> None:
    model = edited(tiny_world.model, tmp_path / "model", eos_token_id=None)
    (model / "generation_config.json").unlink(missing_ok=True)
    with pytest.raises(ConfigError, match=r"no eos_token_id in generation_config.json or config.json"):
        check(tiny_world.run_config(tmp_path / "run", model=str(model)))
    model = edited(tiny_world.model, tmp_path / "other")
    path = model / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    path.write_text(json.dumps({k: v for k, v in settings.items() if k not in ("pad_token", "eos_token")}))
    (model / "special_tokens_map.json").unlink(missing_ok=True)
    with pytest.raises(ConfigError, match=r"its tokenizer has neither pad_token nor eos_token"):
        check(tiny_world.run_config(tmp_path / "run", model=str(model)))


@pytest.mark.parametrize("name", ["a[1].parquet", "a*.parquet", "a?.parquet", "${x}.parquet", "a::b.parquet"])
def test_a_data_file_whose_name_is_a_pattern(name: str, tiny_world: Any, tmp_path: Path) -> None:
    path = tmp_path / name
    shutil.copy(tiny_world.train, path)
    with pytest.raises(ConfigError, match=r"train_files = .*: the name has '.*', a pattern for verl's reader"):
        check(tiny_world.run_config(tmp_path / "run", train_files=[str(path)]))


@pytest.mark.parametrize("name", ["a b,c.parquet", "a'b=.parquet", "(ä) {1}.parquet", "a#&;.parquet"])
def test_other_names_are_read(name: str, tiny_world: Any, tmp_path: Path) -> None:
    """Accepted, and then really read by verl."""
    path = tmp_path / name
    shutil.copy(tiny_world.train, path)
    run = tiny_world.run_config(tmp_path / "run", train_files=[str(path)])
    check(run)
    from verl.utils.dataset.rl_dataset import RLHFDataset

    config = compose(run)
    assert len(RLHFDataset(config.data.train_files, None, config.data)) == 64


def test_a_data_file_of_another_format(tiny_world: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"train_files = rows.csv: allowed is a file whose name ends in .parquet"):
        check(tiny_world.run_config(tmp_path / "run", train_files=["rows.csv"]))


def test_a_seed_that_numpy_refuses(tiny_world: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"seed = 4294967296: allowed is an integer from 0 to 4294967295"):
        tiny_world.run_config(tmp_path / "run", seed=2**32)
    assert isinstance(tiny_world.run_config(tmp_path / "run", seed=2**32 - 1), RunConfig)


def test_a_template_that_fails_or_renders_nothing(tiny_world: Any, tmp_path: Path) -> None:
    for text, message in (
        ("{{ raise_exception('no user') }}", r"row 0: the chat template raised TemplateError: no user"),
        ("{{ messages[0].nothing.more }}", r"row 0: the chat template raised UndefinedError"),
        ("{% for", r"row 0: the chat template raised TemplateSyntaxError"),
        ("{# nothing #}", r"row 0: the chat template renders an empty prompt"),
    ):
        (tmp_path / "own.jinja").write_text(text)
        with pytest.raises(ConfigError, match=message):
            check(tiny_world.run_config(tmp_path / "run", chat_template=str(tmp_path / "own.jinja")))


@pytest.mark.parametrize(
    ("where", "key", "meant"),
    [
        ("rollout.custom", "topk", "top_k"),
        ("rollout.custom", "stalenes", "staleness"),
        ("fsdp_config.mixed_precision", "param_dtyp", "param_dtype"),
    ],
)
def test_unknown_keys_of_free_form_settings(where: str, key: str, meant: str) -> None:
    """verl takes whatever stands in these; who misspells one would train without it."""
    with pytest.raises(
        ValueError, match=rf"{where}.{key}: unknown key; did you mean '{meant}'\? Allowed are .*{meant}"
    ):
        refuse_unknown(where, {key: 1})
    refuse_unknown(where, dict.fromkeys(FREE_FORM[where]))
    refuse_unknown(where, None)


def test_an_old_key_of_the_rollout_is_refused_with_its_new_name() -> None:
    """Unread, a user's verl configuration for an earlier version would sample without staleness."""
    with pytest.raises(ValueError, match=r"rollout.custom.lag: unknown key \(now called staleness\)"):
        refuse_unknown("rollout.custom", {"lag": 2})


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("+actor_rollout_ref.rollout.custom.topk=3", r"rollout.custom.topk: unknown key; did you mean 'top_k'\?"),
        (
            "+actor_rollout_ref.actor.fsdp_config.mixed_precision.quantize=fp8",
            r"fsdp_config.mixed_precision.quantize: unknown key; did you mean 'quantise'\?",
        ),
        (
            "algorithm.rollout_correction.rollout_is=token",
            r"overrides: algorithm.rollout_correction.rollout_is = 'token': allowed is null",
        ),
    ],
)
def test_settings_of_verl_that_would_do_nothing(override: str, message: str, tiny_world: Any, tmp_path: Path) -> None:
    """On the way that a user's own verl configuration takes into our classes."""
    with pytest.raises(ValueError, match=message):
        build_trainer(tiny_world.run_config(tmp_path / "run", overrides=[override]))


def own_grid(tiny_world: Any, **changes: Any) -> dict[str, Any]:
    setting = {
        "model_path": str(tiny_world.model),
        "train_files": [str(tiny_world.train)],
        "val_files": [str(tiny_world.test)],
        "reward_function": {"path": "workflows/world/reward.py"},
        **{"lr": 1.0e-3, "prompts": 8, "group": 4, "mini_batches": 2, "steps": 1, "top_k": 5},
        **{"prompt_length": 5, "response_length": 4},
        **changes,
    }
    blocks = [{"settings": ["own"], "seeds": [0]}]
    return {"tier": "own", "settings": {"own": setting}, "methods": {"drpo": {}}, "grid": blocks}


def test_a_grid_is_refused_for_the_same(tiny_world: Any, tmp_path: Path) -> None:
    """Before Snakemake has a job: folder, names of data files, positions."""
    Grid.check(own_grid(tiny_world), "own.yaml")
    (tmp_path / "a[1].parquet").touch()
    (tmp_path / "empty").mkdir()
    for changes, message in (
        ({"model_path": str(tmp_path / "empty")}, r"own.yaml: settings.own.model_path = .*: no config.json there"),
        (
            {"train_files": [str(tmp_path / "a[1].parquet")]},
            r"settings.own.train_files = .*: allowed is a path without",
        ),
        ({"response_length": 10**6}, r"settings.own.prompt_length \+ response_length = .* positions"),
    ):
        with pytest.raises(GridError, match=message):
            Grid.check(own_grid(tiny_world, **changes), "own.yaml")


def test_options_of_a_setting_reach_its_runs(tiny_world: Any) -> None:
    """From YAML through the schema; the toy world's reward sees special tokens unless told otherwise, others do not."""
    options = yaml.safe_load(
        "{mask_truncated: true, skip_flat_groups: true, rollouts: true, chat_template: false, overlong_prompts: drop, "
        "overrides: [data.shuffle=False]}"
    )
    (run,) = Grid.check(own_grid(tiny_world, **options), "own.yaml").runs().values()
    assert run.overrides == options.pop("overrides")
    assert {name: getattr(run.setting, name) for name in options} == options
    assert run.setting.reward_special_tokens is False
    toy = yaml.safe_load(Path("workflows/config/ci.yaml").read_text())
    assert {run.setting.reward_special_tokens for run in Grid.check(toy, "ci.yaml").runs().values()} == {True}
    for setting in toy["settings"].values():
        setting["reward_special_tokens"] = False
    assert {run.setting.reward_special_tokens for run in Grid.check(toy, "ci.yaml").runs().values()} == {False}
