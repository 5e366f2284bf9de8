"""definition: what each training and rollout precision computes in, through verl's engine and our rollout.

Equal pairs of plain dtypes are in test_mismatch.py; the table over all pairs in tests/workflows/tools/test_mismatch.py.
Not covered: several ranks, real 8-bit kernels, and precision's effect on what is learnt.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from methods.backend import engine as engine_module
from methods.backend import launch, trainer
from methods.backend.compose import build_trainer
from methods.backend.recipe import verl_overrides
from methods.precision.quantisation import SCHEMES, fake_quantise, quantise_model


def trained(tiny_world: Any, output: Path, **changes: Any) -> list[dict[str, float]]:
    """Metrics of steps 1, 2, ...; one mini-batch a step and a current rollout unless told otherwise."""
    launch.train(tiny_world.run_config(output, **{"steps": 1, "mini_batches": 1, "staleness": 0, **changes}))
    return [json.loads(line)["data"] for line in (output / "metrics.jsonl").read_text().splitlines()[1:]]


@pytest.mark.parametrize(("train", "rollout"), [("fp16", "fp16"), ("fp8_bf16", "fp8")])
def test_the_same_arithmetic_agrees(train: str, rollout: str, tiny_world: Any, tmp_path: Path) -> None:
    """To 1e-5 in the mean. The maximum is free to one rounding of the narrow dtype, amplified by what follows it."""
    data = trained(tiny_world, tmp_path / "run", train_precision=train, rollout_precision=rollout)[0]
    assert data["gap/sampled_mean"] <= 1e-5 and data["gap/topk_mean"] <= 1e-4
    assert data["gap/topk_max"] <= 0.02 and data["mask/fraction"] == 0


def test_fp8_end_to_end_is_closer_than_an_fp8_rollout_alone(tiny_world: Any, tmp_path: Path) -> None:
    """Both gaps are real: float32 and bfloat16 around the same quantised products take other codes now and then."""
    alone = trained(tiny_world, tmp_path / "alone", rollout_precision="fp8")[0]
    both = trained(tiny_world, tmp_path / "both", train_precision="fp8", rollout_precision="fp8")[0]
    for name in ("gap/sampled_mean", "gap/topk_mean"):
        assert 1e-3 < both[name] < alone[name] < 0.5


def test_what_was_trained_is_on_record(tiny_world: Any, tmp_path: Path) -> None:
    """fp8 keeps float32 masters: published weights are off the grid. Manifest and checkpoint tell the precision."""
    trained(tiny_world, tmp_path / "run", train_precision="fp8", rollout_precision="int8")
    worker = json.loads((tmp_path / "run" / "manifest.json").read_text())["worker"]
    assert worker["train_precision"] == {"dtype": "float32", "quantise": "fp8"}
    assert worker["rollout_precision"] == {"dtype": "bfloat16", "quantise": "int8"}
    folder = tmp_path / "run" / "checkpoints" / "step_1"
    assert json.loads((folder / "tether.json").read_text())["train_precision"]["quantise"] == "fp8"
    weight = load_file(folder / "model.safetensors")["model.layers.0.self_attn.q_proj.weight"]
    assert weight.dtype == torch.float32 and not torch.equal(fake_quantise(weight, SCHEMES["fp8"]), weight)


def test_a_worker_that_does_not_quantise_is_refused(
    tiny_world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted fault: the setting arrives and nothing happens, as with verl's rollout.quantization on other engines."""
    monkeypatch.setattr(engine_module, "quantise_model", lambda model, scheme: [])
    with pytest.raises(RuntimeError, match=r"train_precision: asked .*'fp8'.*runs .*'none'"):
        build_trainer(tiny_world.run_config(tmp_path / "run", train_precision="fp8"))


def test_the_setting_is_seen_in_verls_configuration(tiny_world: Any, tmp_path: Path) -> None:
    lines = verl_overrides(tiny_world.run_config(tmp_path / "run", train_precision="fp8", rollout_precision="int8"))
    assert "+actor_rollout_ref.actor.fsdp_config.mixed_precision.quantise='fp8'" in lines
    assert "+actor_rollout_ref.rollout.custom.quantise='int8'" in lines
    assert "actor_rollout_ref.rollout.dtype='bfloat16'" in lines


@pytest.mark.parametrize("wrapped", [False, True])
def test_forward_and_gradient_are_the_plain_ones(
    wrapped: bool, tiny_world: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    """conformance: our engine in fp8, under FSDP2 and alone, against the same Hugging Face model, quantised."""
    if wrapped:
        monkeypatch.setattr(engine_module.CPUEngine, "_alone", lambda self: False)
    built = build_trainer(tiny_world.run_config(tmp_path / "run", train_precision="fp8"))
    sharded = built.worker.actor.engine
    plain = AutoModelForCausalLM.from_pretrained(tiny_world.model, dtype=torch.float32, attn_implementation="sdpa")
    quantise_model(plain, "fp8")
    ids = torch.randint(5, 45, (6, 8), generator=torch.Generator().manual_seed(0))
    mask, places = torch.ones_like(ids), torch.arange(8).expand(ids.shape)
    expected = plain(input_ids=ids, use_cache=False).logits
    assert torch.allclose(sharded.logits(ids, mask, places), expected, atol=1e-5)
    expected.square().mean().backward()
    out = sharded.module(input_ids=ids, attention_mask=mask, position_ids=places, use_cache=False)
    out.logits.square().mean().backward()
    gradients = {name: engine_module.local(parameter.grad) for name, parameter in sharded.module.named_parameters()}
    for name, parameter in plain.named_parameters():
        assert torch.allclose(gradients[name], parameter.grad, rtol=1e-3, atol=1e-6), name


def with_scale(monkeypatch: pytest.MonkeyPatch, scale: float) -> None:
    """Start the loss scale of fp16 training there."""
    setup = trainer.InProcessTrainer._setup

    def started(self: Any) -> None:
        setup(self)
        self.worker.actor.engine.scaler._init_scale = scale

    monkeypatch.setattr(trainer.InProcessTrainer, "_setup", started)


def test_a_scaled_gradient_that_overflows_skips_the_step(
    tiny_world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run goes on with its weights as they were; verl's infinite gradient norm would stop it."""
    with_scale(monkeypatch, 2.0**60)
    settings = {"train_precision": "fp16", "rollout_precision": "fp16", "mini_batches": 2, "steps": 2}
    rows = trained(tiny_world, tmp_path / "run", **settings)
    assert [row["updates/overflowed_steps"] for row in rows] == [2, 2]
    assert [row["grad_norm"] for row in rows] == [0, 0]
    start = load_file(tiny_world.model / "model.safetensors")
    end = load_file(tmp_path / "run" / "checkpoints" / "step_2" / "model.safetensors")
    assert all(torch.equal(end[name], tensor) for name, tensor in start.items())


def test_fp16_has_the_gradient_of_fp32(tiny_world: Any, tmp_path: Path) -> None:
    """The scale is taken out again before clipping and step, and no step overflows at the default scale."""
    rows = {
        name: trained(tiny_world, tmp_path / name, train_precision=name, rollout_precision="fp32")[0]
        for name in ("fp16", "fp32")
    }
    assert rows["fp16"]["grad_norm"] == pytest.approx(rows["fp32"]["grad_norm"], rel=0.02)
    assert rows["fp16"]["updates/overflowed_steps"] == 0 and "updates/overflowed_steps" not in rows["fp32"]


def test_a_checkpoint_holds_the_loss_scale(tiny_world: Any, tmp_path: Path) -> None:
    """verl leaves it out; a resumed fp16 run would then round its gradients otherwise."""
    run = tiny_world.run_config(tmp_path / "run", train_precision="fp16")
    built = build_trainer(run).worker.actor.engine
    state = {**built.scaler.state_dict(), "scale": 1024.0, "_growth_tracker": 7}
    built.scaler.load_state_dict(state)
    built.save_checkpoint(str(tmp_path / "checkpoint"))
    other = build_trainer(run).worker.actor.engine
    assert other.scaler.state_dict() != state
    other.load_checkpoint(str(tmp_path / "checkpoint"))
    assert other.scaler.state_dict() == state


@pytest.mark.parametrize(("train", "rollout"), [("fp32", "bf16"), ("bf16", "bf16"), ("fp8_bf16", "fp8")])
def test_a_reference_model_on_the_cpu(train: str, rollout: str, tiny_world: Any, tmp_path: Path) -> None:
    """The reference is the start in the trainer's own precision, so KL is 0, then grows."""
    settings = {"train_precision": train, "rollout_precision": rollout, "steps": 2}
    first, second = trained(tiny_world, tmp_path / "run", reference_kl=0.1, **settings)
    assert abs(first["kl/reference"]) < 1e-6 and second["kl/reference"] > 1e-5


def test_a_stronger_pull_to_the_reference_keeps_the_policy_closer(tiny_world: Any, tmp_path: Path) -> None:
    """property: the term is in the loss and not only in the metrics."""
    far, near = (
        trained(tiny_world, tmp_path / str(pull), reference_kl=pull, steps=3)[-1]["kl/reference"]
        for pull in (1e-6, 100.0)
    )
    assert near < far / 2
