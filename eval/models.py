"""How large the trained models are, read off their files."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from eval.files import InputError

HEADER_BYTES = 8  # little-endian length of the JSON header that a safetensors file starts with
MOST_HEADER = 100_000_000


def parameters(folder: Path) -> int | None:
    """Parameters in the *.safetensors files of a model folder, from their headers; None where it has none.

    Tied tensors are stored once and count once. Raises InputError for a folder that is not there or a broken file.
    """
    if not folder.is_dir():
        raise InputError(f"--model: no such folder: {folder}")
    files = sorted(folder.glob("*.safetensors"))
    return sum(map(_in_file, files)) if files else None


def _in_file(path: Path) -> int:
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(HEADER_BYTES), "little")
        text = stream.read(min(length, MOST_HEADER))
    try:
        header = json.loads(text)
        return sum(math.prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"--model: {path} is not a safetensors file: {error!r}") from error


def described(folders: Iterable[Path]) -> str:
    """`a model of 0.14 million parameters`, `models of 0.14 to 1.2 million parameters`, or without sizes if unknown."""
    listed = list(folders)
    sizes = sorted({size for folder in listed if (size := parameters(folder)) is not None})
    noun = "models" if len(listed) > 1 else "a model"
    return f"{noun} of {_millions(sizes)} parameters" if sizes else noun


def _millions(sizes: Sequence[int]) -> str:
    unit, name = (1e9, "billion") if sizes[0] >= 1e9 else (1e6, "million")
    ends = dict.fromkeys(_short(size / unit) for size in (sizes[0], sizes[-1]))
    return f"{' to '.join(ends)} {name}"


def _short(value: float) -> str:
    """Two digits, three from 100 on, and never an exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.2g}"
