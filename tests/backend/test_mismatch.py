"""definition: before any update, trainer and rollout agree to the error of their common precision.

One step of one mini-batch, so that every metric is of weights that no update has touched.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from methods.backend import launch


def first_step(tiny_world: Any, output: Path, **changes: Any) -> dict[str, float]:
    launch.train(tiny_world.run_config(output, steps=1, mini_batches=1, staleness=0, **changes))
    return json.loads((output / "metrics.jsonl").read_text().splitlines()[1])["data"]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_equal_precisions_agree(precision: str, tiny_world: Any, tmp_path: Path) -> None:
    """bf16 means bf16 compute over fp32 master weights. Also: no token is outside, none is masked."""
    data = first_step(tiny_world, tmp_path / "run", train_precision=precision, rollout_precision=precision)
    assert data["gap/topk_max"] <= 1e-5 and data["gap/sampled_max"] <= 1e-5
    assert data["mask/fraction"] == 0 and data["divergence/outside_share"] == 0
    assert abs(data["ratio/max"] - 1) < 1e-4


def test_unequal_precisions_show_a_real_gap(tiny_world: Any, tmp_path: Path) -> None:
    """fp32 training against a bf16 rollout: the size that GPUs show, neither zero nor large."""
    data = first_step(tiny_world, tmp_path / "run", train_precision="fp32", rollout_precision="bf16")
    assert 1e-4 < data["gap/topk_max"] < 0.5


def test_temperature_is_applied_on_both_sides(tiny_world: Any, tmp_path: Path) -> None:
    """field case 28: logits, and so their rounding, are divided by the temperature in rollout and trainer."""
    data = first_step(tiny_world, tmp_path / "run", rollout_precision="fp32", temperature=0.6)
    assert max(data["gap/topk_max"], data["gap/sampled_max"]) <= 1e-5 / 0.6


def test_micro_batches_change_nothing(tiny_world: Any, tmp_path: Path) -> None:
    """The same mini-batch in 1, 2 or 4 forward passes: equal metrics, gradient norm included, up to rounding."""
    whole = first_step(tiny_world, tmp_path / "whole", rollout_precision="fp32")
    for micro_batch in (16, 8):
        split = first_step(tiny_world, tmp_path / str(micro_batch), rollout_precision="fp32", micro_batch=micro_batch)
        assert set(split) == set(whole)
        for name, value in whole.items():
            if not name.startswith(("gap/", "kl/", "ratio/", "divergence/")):
                assert split[name] == pytest.approx(value, rel=1e-4, abs=1e-6), name
