"""conformance: trackers get the same numbers under the same names as metrics.jsonl, and write into the run's folder."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from methods.backend import launch


def test_tensorboard_and_offline_wandb(tiny_world: Any, tmp_path: Path) -> None:
    """Every metric of every step in tensorboard; for wandb only that its offline run lies there."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    names = ("TENSORBOARD_DIR", "WANDB_DIR", "WANDB_MODE")
    before = [os.environ.get(name) for name in names]
    launch.train(tiny_world.cell(tmp_path / "run", trackers=["tensorboard", "wandb"], steps=2))
    assert [os.environ.get(name) for name in names] == before
    events = EventAccumulator(str(tmp_path / "run" / "trackers" / "tensorboard"))
    events.Reload()
    for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        for name, value in row["data"].items():
            logged = {event.step: event.value for event in events.Scalars(name)}
            assert abs(logged[row["step"]] - value) <= 1e-6 * max(1.0, abs(value)), name
    assert not [tag for tag in events.Tags()["scalars"] if tag.startswith(("actor/mask/", "actor/ratio/"))]
    assert list((tmp_path / "run" / "trackers" / "wandb").rglob("*.wandb"))
