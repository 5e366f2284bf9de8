"""Outputs that appear complete or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """A folder to fill, which takes the place of `target` when the block ends without an error."""
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    yield partial
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)


def remove_empty(folder: Path) -> None:
    """Remove a folder and those below it that hold no file; what holds one stays, with its parents."""
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            with suppress(OSError):
                path.rmdir()
    with suppress(OSError):
        folder.rmdir()
