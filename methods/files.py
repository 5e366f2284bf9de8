"""Files that appear whole or not at all. Every room may import this; it needs the standard library only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replace_whole(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A file beside `path` to write, which takes its place when the block ends without an error.

    A reader sees the old file or the whole new one. An error leaves nothing behind, a kill `<name>.tmp`, which the next
    write replaces.
    """
    target = Path(path)
    temporary = target.with_name(f"{target.name}.tmp")
    try:
        yield temporary
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write UTF-8 text with Unix line ends, whole or not at all."""
    with replace_whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
