"""Experiment trackers of verl (tensorboard, wandb): where they write, and under which names."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from methods.backend.run.log import OURS, canonical, rows_until


@contextmanager
def write_to(folder: Path, trackers: Sequence[str]) -> Iterator[None]:
    """verl's trackers take their folders from the environment; wandb stays offline unless WANDB_MODE says otherwise."""
    wanted = {"TENSORBOARD_DIR": str(folder / "tensorboard"), "WANDB_DIR": str(folder / "wandb")}
    before = {name: os.environ.get(name) for name in (*wanted, "WANDB_MODE")}
    os.environ.update(wanted)
    os.environ.setdefault("WANDB_MODE", "offline")
    if "wandb" in trackers:
        Path(wanted["WANDB_DIR"]).mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def keep_until(work: Path, step: int) -> None:
    """Make tensorboard's files hold each step up to `step` once, as metrics.jsonl does: a run goes on from there.

    Events past it go; a step that was not yet on disk when the run was killed is filled in from metrics.jsonl. What
    verl logs beside those metrics is then missing at that step. wandb has a run of its own for each start.
    """
    folder = work / "trackers" / "tensorboard"
    if not folder.exists():
        return
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.compat.proto.event_pb2 import Event
    from torch.utils.tensorboard import FileWriter, SummaryWriter

    raw = [record for path in sorted(folder.iterdir()) for record in RawEventFileLoader(str(path)).Load()]
    shutil.rmtree(folder)
    if step == 0:
        return
    kept = [event for event in map(Event.FromString, raw) if event.HasField("summary") and event.step <= step]
    there = {event.step for event in kept}
    events = FileWriter(str(folder))
    for event in kept:
        events.event_writer.add_event(event)
    events.close()
    rows = map(json.loads, rows_until(work / "metrics.jsonl", step))
    with SummaryWriter(str(folder), filename_suffix=".filled") as writer:
        for row in (row for row in rows if row["step"] not in there):
            for name, value in row["data"].items():
                writer.add_scalar(name, value, row["step"])


def rename(metrics: dict[str, Any]) -> None:
    """Give our metrics the names they have in metrics.jsonl, so that every tracker shows the same ones (in place)."""
    ours = canonical(metrics)
    for name in [name for name in metrics if name.removeprefix("actor/").startswith(OURS)]:
        del metrics[name]
    metrics.update(ours)
