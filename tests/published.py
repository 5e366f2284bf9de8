"""What a training has published, for comparisons byte by byte."""

from __future__ import annotations

from pathlib import Path


def contents(output: Path, without: str = "") -> dict[str, bytes]:
    """Bytes of each file by its path; timings differ from run to run, and the folder `without` is left out."""
    return {
        str(path.relative_to(output)): path.read_bytes()
        for path in sorted(output.rglob("*"))
        if path.is_file() and path.name != "timing.jsonl" and path.relative_to(output).parts[0] != without
    }
