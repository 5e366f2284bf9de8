"""property: every registered method trains through verl, and no two are the same under different names.

Not covered: that a gradient is the right one (tests/methods, tests/agreement).
"""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from methods import registry
from methods.backend import launch
from methods.registry import Needs
from tests.methods.equalities import EQUALITIES, equal_by_default
from tests.methods.helpers import SHIPPED

VOCABULARY, STEPS, MINI_BATCHES = 45, 3, 2


def needs(name: str) -> Needs:
    method = registry.get(name)
    return method.requires(method.configure())


@pytest.mark.parametrize("name", registry.names())
def test_every_method_trains(name: str, tiny_world: Any, tmp_path: Path) -> None:
    """Three steps of two mini-batches on a stale rollout: weights move, all metrics are finite."""
    launch.train(
        tiny_world.run_config(
            tmp_path / "run", method=name, top_k=VOCABULARY, staleness=1, mini_batches=MINI_BATCHES, steps=STEPS
        )
    )
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()][1:]
    assert len(rows) == STEPS
    for row in rows:
        assert row["data"]["updates/optimizer_steps"] == MINI_BATCHES
        assert all(map(math.isfinite, row["data"].values()))
    assert rows[-1]["data"]["weights/sampled_version"] == STEPS - 2
    assert max(row["data"]["grad_norm"] for row in rows) > 0
    weights = load_file(tmp_path / "run" / "checkpoints" / f"step_{STEPS}" / "model.safetensors")
    start = load_file(tiny_world.model / "model.safetensors")
    assert any(not torch.equal(weights[key], start[key]) for key in start)
    worker = json.loads((tmp_path / "run" / "manifest.json").read_text())["worker"]
    assert worker["method"] == name and worker["loss_function"].endswith(f".{name}_policy_loss")


@pytest.fixture(scope="module")
def gradients(engine_batch: Any) -> dict[str, Tensor]:
    """Of all weights, by method with its default options."""
    return {name: engine_batch.gradient(name)[1] for name in registry.names()}


def difference(a: Tensor, b: Tensor) -> float:
    """Relative to the larger; of two zero gradients 0."""
    return float((a - b).norm() / max(a.norm(), b.norm(), 1e-30))


def test_no_two_methods_are_one(gradients: dict[str, Tensor]) -> None:
    """On one off-policy batch all pairs of ours differ, except those that tests/methods/equalities.py states."""
    same = {
        frozenset(pair)
        for pair in itertools.combinations(SHIPPED, 2)
        if difference(gradients[pair[0]], gradients[pair[1]]) < 1e-6
    }
    assert sorted(map(sorted, same)) == sorted(map(sorted, equal_by_default()))
    assert all(gradient.isfinite().all() and gradient.any() for gradient in gradients.values())


@pytest.mark.parametrize("pair", EQUALITIES, ids=lambda pair: f"{pair.a}={pair.b}")
def test_stated_equalities_hold_through_verl(pair: Any, engine_batch: Any) -> None:
    a = engine_batch.gradient(pair.a, **pair.a_options)[1]
    assert difference(a, engine_batch.gradient(pair.b, **pair.b_options)[1]) < 1e-6 and a.any()


@pytest.mark.parametrize("name", [name for name in registry.names() if Needs.MINI_BATCH not in needs(name)])
def test_no_row_depends_on_the_others_of_its_micro_batch(
    name: str, engine_batch: Any, gradients: dict[str, Tensor]
) -> None:
    """field case 26: pieces of 16 and verl's uneven ones by token count, accumulated, are the whole."""
    for micro_batch in (16, None):
        pieces = engine_batch.gradient(name, micro_batch=micro_batch)[1]
        assert difference(pieces, gradients[name]) < 1e-4, micro_batch
