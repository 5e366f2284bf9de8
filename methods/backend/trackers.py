"""Experiment trackers of verl (tensorboard, wandb): where they write, and under which names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from methods.backend.run_log import OURS, canonical


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """verl's trackers take their folders from the environment; wandb stays offline unless WANDB_MODE says otherwise."""
    wanted = {"TENSORBOARD_DIR": str(folder / "tensorboard"), "WANDB_DIR": str(folder / "wandb")}
    before = {name: os.environ.get(name) for name in (*wanted, "WANDB_MODE")}
    os.environ.update(wanted)
    os.environ.setdefault("WANDB_MODE", "offline")
    Path(wanted["WANDB_DIR"]).mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def rename(metrics: dict[str, Any]) -> None:
    """Give our metrics the names they have in metrics.jsonl, so that every tracker shows the same ones (in place)."""
    ours = canonical(metrics)
    for name in [name for name in metrics if name.removeprefix("actor/").startswith(OURS)]:
        del metrics[name]
    metrics.update(ours)
