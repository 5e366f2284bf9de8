"""definition: what the trainer makes of a model and a schedule: no dropout, a warm-up that begins above 0, its lr."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

from methods.backend import dropout, launch

LLAMA = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 11}
SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 11}


def rows(output: Path) -> list[dict[str, float]]:
    return [json.loads(line)["data"] for line in (output / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("kind", "size", "noise"),
    [
        ("llama", LLAMA, {"attention_dropout": 0.5}),
        ("gpt2", {"n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 11}, {}),  # 0.1 by default, three times
        ("gpt_neox", SMALL | {"intermediate_size": 16}, {"hidden_dropout": 0.5, "attention_dropout": 0.5}),
        ("falcon", SMALL, {"hidden_dropout": 0.5, "attention_dropout": 0.5}),  # reads its configuration in forward
        (
            "opt",
            SMALL | {"ffn_dim": 16, "word_embed_proj_dim": 16},
            {"dropout": 0.5, "attention_dropout": 0.5, "layerdrop": 0.5},
        ),
        ("mixtral", LLAMA | {"num_key_value_heads": 2, "num_local_experts": 2}, {"router_jitter_noise": 0.5}),
    ],
)
def test_no_model_computes_otherwise_in_training_than_in_sampling(
    kind: str, size: dict[str, int], noise: dict[str, float]
) -> None:
    """Modules, functional dropout, dropped layers, routers. Covers no model whose code comes with its weights."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **size, **noise))
    ids = torch.arange(10).view(1, -1)

    def logits(training: bool) -> torch.Tensor:
        with torch.no_grad():
            return model.train(training)(input_ids=ids).logits

    expected = logits(False)
    assert not torch.equal(logits(True), expected)
    found = dropout.turn_off(model)
    assert found.items() >= noise.items() and found
    assert torch.equal(logits(True), expected)
    assert dropout.turn_off(model) == {}


def test_a_models_dropout_is_off_in_training_and_told(tiny_world: Any, tmp_path: Path, capfd: Any) -> None:
    """The run equals, byte by byte, that of the same model without; the reference model and Ray use the same class."""
    model = tmp_path / "model"
    shutil.copytree(tiny_world.model, model)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "attention_dropout": 0.1}))
    settings = {"steps": 1, "reference_kl": 0.1, "rollout_precision": "fp32", "staleness": 0}
    launch.train(tiny_world.run_config(tmp_path / "plain", **settings))
    launch.train(tiny_world.run_config(tmp_path / "dropout", model=str(model), **settings))
    assert "off in the trainer, since the rollout samples without: attention_dropout 0.1" in capfd.readouterr().err
    assert (tmp_path / "dropout" / "metrics.jsonl").read_bytes() == (tmp_path / "plain" / "metrics.jsonl").read_bytes()
    manifest = json.loads((tmp_path / "dropout" / "manifest.json").read_text())
    assert manifest["worker"]["dropout_off"] == {"attention_dropout": 0.1}
    # The published model is the user's, with its own settings.
    published = json.loads((tmp_path / "dropout" / "checkpoints" / "step_1" / "config.json").read_text())
    assert published["attention_dropout"] == 0.1


def test_a_warm_up_moves_from_its_first_step_and_logs_the_rate_used(tiny_world: Any, tmp_path: Path) -> None:
    """W = 3: lr / 3, 2 lr / 3, lr, lr. The first step's change is that of a run at lr / 3 without warm-up."""
    settings = {"lr": 3e-3, "save_every": 1, "export_every": 1, "staleness": 0}
    launch.train(tiny_world.run_config(tmp_path / "warm", warmup_steps=3, steps=4, **settings))
    launch.train(tiny_world.run_config(tmp_path / "third", steps=1, **(settings | {"lr": 1e-3})))
    assert [row["lr"] for row in rows(tmp_path / "warm")[1:]] == pytest.approx([1e-3, 2e-3, 3e-3, 3e-3], rel=1e-12)
    start, warm, third = (
        load_file(folder / "model.safetensors")
        for folder in (tiny_world.model, *(tmp_path / name / "checkpoints" / "step_1" for name in ("warm", "third")))
    )
    assert all(torch.allclose(warm[name], third[name], rtol=0, atol=1e-9) for name in warm)
    assert any(not torch.equal(warm[name], start[name]) for name in warm)
