"""The folders of a training: where it works, and how its results appear whole or not at all."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from methods.backend import versions
from methods.backend.recipe import Cell, CellError, verl_overrides

PLACES = ("trainer.default_local_dir=", "+trainer.tether_work_dir=")


def write_json(path: Path, value: Any) -> None:
    """Atomically, with sorted keys."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(value, indent=1, sort_keys=True) + "\n")
    temporary.replace(path)


def settings_of(cell: Cell) -> dict[str, Any]:
    """What decides a run's results: the cell without the places of its files."""
    return {name: value for name, value in cell.dump().items() if name not in ("output", "work")}


@contextmanager
def alone(cell: Cell) -> Iterator[None]:
    """Hold the work directory. Raises CellError where another process trains the same cell."""
    work = cell.work_dir
    work.parent.mkdir(parents=True, exist_ok=True)
    lock = work.with_name(work.name + ".lock")
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CellError(f"work = {work}: another process is training this cell") from None
        yield
        lock.unlink(missing_ok=True)


def prepare_work(cell: Cell) -> None:
    """Set up the work directory; one of another configuration is moved aside, never resumed from."""
    work = cell.work_dir
    record, settings = work / "cell.json", json.loads(json.dumps(settings_of(cell)))
    if record.exists() and json.loads(record.read_text()) != settings:
        aside = work.with_name(work.name + ".superseded")
        shutil.rmtree(aside, ignore_errors=True)
        work.rename(aside)
        print(f"[train] settings changed since the interrupted run; its files are in {aside}", flush=True)
    work.mkdir(parents=True, exist_ok=True)
    write_json(record, settings)


def export(cell: Cell, checkpoint: Path, step: int) -> None:
    """Keep the Hugging Face part of a checkpoint that is to be scored."""
    if step != cell.panel.steps and not (cell.panel.export_every and step % cell.panel.export_every == 0):
        return
    target = cell.work_dir / "checkpoints" / f"step_{step}"
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(checkpoint / "actor" / "huggingface", partial)
    # verl writes float32 tensors beside a config that says bfloat16; readers would round the weights.
    config = json.loads((partial / "config.json").read_text())
    config.pop("torch_dtype", None)
    write_json(partial / "config.json", {**config, "dtype": "float32"})
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)


def publish(cell: Cell, report: dict[str, Any]) -> None:
    """Put a finished run in the place of `output` by one rename; a kill before it leaves the work directory whole."""
    work, output, staged = cell.work_dir, Path(cell.output), cell.work_dir / "published"
    shutil.rmtree(staged, ignore_errors=True)
    staged.mkdir()
    for name in ("checkpoints", "trackers"):
        if (work / name).exists():
            shutil.copytree(work / name, staged / name, copy_function=_link)
    for name in ("metrics.jsonl", "timing.jsonl"):
        shutil.copy2(work / name, staged / name)
    manifest = {
        "cell": settings_of(cell),
        "panel": cell.dump()["panel"],
        "worker": report,
        # Without the place of the work directory, which is no setting and differs between machines.
        "verl_overrides": [line for line in verl_overrides(cell) if not line.startswith(PLACES)],
        "versions": versions.installed(),
    }
    write_json(staged / "manifest.json", manifest)
    output.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(output, ignore_errors=True)
    staged.rename(output)
    shutil.rmtree(work)
    _remove_empty(work.parent)


def _link(source: str, target: str) -> None:
    """A hard link takes no space; where the file system has none, a copy."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _remove_empty(folder: Path) -> None:
    while folder.name and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent
