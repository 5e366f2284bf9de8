"""conformance: trackers get the same numbers under the same names as metrics.jsonl, and write into the run's folder."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from methods.backend import launch
from methods.backend.run import trackers


def test_tensorboard_and_offline_wandb(tiny_world: Any, tmp_path: Path) -> None:
    """Every metric of every step in tensorboard; for wandb only that its offline run lies there."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    names = ("TENSORBOARD_DIR", "WANDB_DIR", "WANDB_MODE")
    before = [os.environ.get(name) for name in names]
    launch.train(tiny_world.run_config(tmp_path / "run", trackers=["tensorboard", "wandb"], steps=2))
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


def test_after_a_resume_each_step_is_there_once(tmp_path: Path) -> None:
    """Two event files reach past the restart point of step 2; step 1 had not come to the disk; half a row is cut off.

    The files of a training that was stopped, written here: what verl logs is scalars by name and step.
    """
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    folder = tmp_path / "trackers" / "tensorboard"
    for suffix, steps in ((".first", (0, 2, 3)), (".second", (3, 4))):
        with SummaryWriter(str(folder), filename_suffix=suffix) as writer:
            for step in steps:
                writer.add_scalar("loss", 10 + step, step)
    rows = [json.dumps({"step": step, "data": {"loss": 10.0 + step}}) for step in range(5)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(rows) + '\n{"step": 5, "da')
    trackers.keep_until(tmp_path, 2)
    with SummaryWriter(str(folder)) as writer:  # verl's, after the restart
        writer.add_scalar("loss", 13.0, 3)
    events = EventAccumulator(str(folder), purge_orphaned_data=False)
    events.Reload()
    assert sorted((event.step, event.value) for event in events.Scalars("loss")) == [
        (step, 10.0 + step) for step in range(4)
    ]


def test_a_run_without_trackers_has_no_folder_for_them(tmp_path: Path) -> None:
    with trackers.write_to(tmp_path / "trackers", []):
        assert os.environ["WANDB_DIR"]
    trackers.keep_until(tmp_path, 3)
    assert not (tmp_path / "trackers").exists()
