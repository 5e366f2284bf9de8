"""Restart points that can be trusted: sealed when complete, checked when read, never the last one removed too early.

verl removes the previous checkpoint before the new one is whole (its retention counts the actor's folder only) and
rewrites its tracker file in place; a kill between the two loses the run. Here a checkpoint counts once its seal is
written, and older ones go only then.
"""

from __future__ import annotations

import json
import shutil
import zlib
from pathlib import Path

from methods.files import write_text

SEAL = "tether_seal.json"
TRACKER = "latest_checkpointed_iteration.txt"
PREFIX = "global_step_"


class RestartError(RuntimeError):
    """A sealed checkpoint is not what was sealed; the message names the file and what to do."""


def seal(checkpoint: Path) -> None:
    """Record every file's size and checksum, let verl's tracker name this checkpoint, then drop the older ones."""
    paths = [path for path in sorted(checkpoint.rglob("*")) if path.is_file()]
    files = {str(path.relative_to(checkpoint)): stamp(path) for path in paths}
    write_text(checkpoint / SEAL, json.dumps(files, indent=1))
    write_text(checkpoint.parent / TRACKER, str(step_of(checkpoint)))
    for other in _checkpoints(checkpoint.parent):
        if other != checkpoint:
            shutil.rmtree(other)


def prepare(folder: Path) -> int:
    """Remove unfinished checkpoints, check the newest sealed one, point verl's tracker at it.

    Returns the step that a run in this folder resumes from, 0 for none. Raises RestartError for a corrupt one.
    """
    sound = 0
    for checkpoint in _checkpoints(folder):
        if not (checkpoint / SEAL).exists():
            print(f"[train] {checkpoint} was not finished and is removed")
            shutil.rmtree(checkpoint)
        elif not sound:
            _check(checkpoint)
            sound = step_of(checkpoint)
    if sound:
        write_text(folder / TRACKER, str(sound))
    else:
        (folder / TRACKER).unlink(missing_ok=True)
    return sound


def newest(folder: Path) -> int:
    """The step of the newest sealed checkpoint, 0 for none; nothing is checked or changed."""
    return next((step_of(checkpoint) for checkpoint in _checkpoints(folder) if (checkpoint / SEAL).exists()), 0)


def step_of(checkpoint: Path) -> int:
    """The training step of a checkpoint folder."""
    return int(checkpoint.name.removeprefix(PREFIX))


def _checkpoints(folder: Path) -> list[Path]:
    """Newest first."""
    return sorted(folder.glob(f"{PREFIX}*"), key=step_of, reverse=True)


def _check(checkpoint: Path) -> None:
    advice = f"remove {checkpoint.parent} to train this run from the start"
    try:
        files = json.loads((checkpoint / SEAL).read_text())
    except json.JSONDecodeError:
        raise RestartError(f"{checkpoint / SEAL}: not readable; {advice}") from None
    for name, sealed in files.items():
        path = checkpoint / name
        if not path.is_file():
            raise RestartError(f"{path}: missing since it was sealed; {advice}")
        if stamp(path) != sealed:
            raise RestartError(f"{path}: other bytes than were sealed; {advice}")


def stamp(path: Path) -> list[int]:
    """Size and checksum of a file. Raises FileNotFoundError."""
    return [path.stat().st_size, crc_of(path)]


def crc_of(path: Path) -> int:
    """CRC-32 of a file's bytes."""
    value = 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            value = zlib.crc32(block, value)
    return value
