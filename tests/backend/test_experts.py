"""definition: a mixture of experts through verl's trainer and our rollout, and how routing differences are counted.

Not covered: expert parallelism, other mixtures than Qwen3-MoE, an auxiliary loss.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from verl.workers.engine.fsdp.utils import unfuse_moe_params

from methods.backend import launch
from methods.backend.experts import differences, fuse, record_routing, routers
from methods.backend.worker import TetherWorker


@pytest.fixture(scope="module")
def mixture_world(tiny_world: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The tiny world with a warm-started mixture: 4 experts, 2 per token."""
    from workflows.world import build, warm_start

    folder = tmp_path_factory.mktemp("mixture")
    size = warm_start.ModelSize(hidden=32, layers=1, heads=1, kind="qwen3_moe", experts=4)
    training = warm_start.Training(target=0.2, batch=128, lr=4e-3, check_every=25, check_prompts=64)
    model, _ = warm_start.fit(build.load(tiny_world.folder), size, training, seed=0)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny_world.folder / "tokenizer").save_pretrained(folder)
    return replace(tiny_world, model=folder)


def trained(world: Any, output: Path, **changes: Any) -> list[dict[str, float]]:
    launch.train(world.run_config(output, **{"mini_batches": 1, "staleness": 0, **changes}))
    return [json.loads(line)["data"] for line in (output / "metrics.jsonl").read_text().splitlines()[1:]]


def test_fusing_undoes_what_verl_does(mixture_world: Any) -> None:
    """agreement: our inverse of verl's own function, on a model's real names."""
    state = AutoModelForCausalLM.from_pretrained(mixture_world.model).state_dict()
    apart = dict(unfuse_moe_params(state.items(), "qwen3_moe"))
    assert "model.layers.0.mlp.experts.3.down_proj.weight" in apart and "model.layers.0.mlp.gate.weight" in apart
    shuffled = dict(sorted(apart.items(), reverse=True))
    fused = fuse(shuffled)
    assert set(fused) == set(state) and all(torch.equal(fused[name], tensor) for name, tensor in state.items())


def test_differences_by_hand() -> None:
    """2 layers, 1 row of 3 tokens of which 2 count: 1 of the 4 (token, layer) has another set; order is no matter."""
    one = torch.tensor([[[[0, 1], [2, 3], [0, 1]]], [[[0, 3], [1, 2], [0, 1]]]])
    other = torch.tensor([[[[0, 1], [1, 3], [2, 3]]], [[[0, 3], [1, 2], [2, 3]]]])
    mask = torch.tensor([[True, True, False]])
    assert differences(one, other, mask) == 0.25
    assert differences(one, one, mask) == 0 and differences(one, other, torch.zeros_like(mask)) == 0


def test_the_routers_choice_is_recorded(mixture_world: Any) -> None:
    """Against the logits of the router itself; nothing stays behind on the model."""
    model = AutoModelForCausalLM.from_pretrained(mixture_world.model).eval()
    ids = torch.randint(5, 45, (2, 6), generator=torch.Generator().manual_seed(0))
    with record_routing(model) as chosen, torch.no_grad():
        model(input_ids=ids)
    assert len(chosen) == len(routers(model)) == 1 and not routers(model)[0]._forward_hooks
    with torch.no_grad():
        logits = model(input_ids=ids, output_router_logits=True).router_logits
    assert torch.equal(chosen[0], logits[0].topk(2, -1).indices.sort(-1).values)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_equal_precisions_route_and_score_alike(precision: str, mixture_world: Any, tmp_path: Path) -> None:
    """The router runs in the rollout's precision: where that is the trainer's too, no choice differs."""
    settings = {"steps": 1, "train_precision": precision, "rollout_precision": precision}
    data = trained(mixture_world, tmp_path / "run", **settings)[0]
    assert data["routing/differences"] == 0
    assert data["gap/sampled_mean"] <= 1e-5 and data["gap/topk_mean"] <= 1e-4


def test_a_stale_rollout_routes_otherwise(mixture_world: Any, tmp_path: Path) -> None:
    """Large steps and a staleness in float32: differences come from the weights alone, and only once they differ."""
    rows = trained(mixture_world, tmp_path / "run", steps=4, staleness=3, lr=2e-2, rollout_precision="fp32")
    assert rows[0]["routing/differences"] == 0
    assert max(row["routing/differences"] for row in rows) > 0


def test_a_mixture_trains_in_fp8_end_to_end_and_is_published_whole(mixture_world: Any, tmp_path: Path) -> None:
    """Each expert's float32 weights are in the checkpoint under transformers' names, and each was trained."""
    settings = {"steps": 2, "mini_batches": 2, "train_precision": "fp8", "rollout_precision": "fp8"}
    rows = trained(mixture_world, tmp_path / "run", **settings)
    assert all(0 <= row["routing/differences"] <= 1 and row["grad_norm"] > 0 for row in rows)
    folder = tmp_path / "run" / "checkpoints" / "step_2"
    start, end = load_file(mixture_world.model / "model.safetensors"), load_file(folder / "model.safetensors")
    assert set(start) == set(end)
    assert all(not torch.equal(end[name], start[name]) for name in start if ".experts." in name or "gate" in name)
    _, report = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]


def test_counting_leaves_the_training_as_it_is(
    mixture_world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = trained(mixture_world, tmp_path / "counted")
    monkeypatch.setattr(TetherWorker, "_routing", lambda *_: {})
    plain = trained(mixture_world, tmp_path / "plain")
    assert [{k: v for k, v in row.items() if not k.startswith("routing/")} for row in counted] == plain


def test_a_dense_model_has_no_routing(tiny_world: Any, tmp_path: Path) -> None:
    assert not [name for name in trained(tiny_world, tmp_path / "run", steps=1)[0] if name.startswith("routing")]
