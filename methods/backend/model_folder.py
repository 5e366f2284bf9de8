"""Which files of a model folder, and which modules beside a reward, a run reads."""

from __future__ import annotations

import ast
from pathlib import Path


def model_files(folder: Path) -> list[Path]:
    """Every file of a Hugging Face model folder, sorted; none where there is no such folder."""
    return sorted(path for path in folder.glob("*") if path.is_file())


def reward_files(path: Path) -> list[Path]:
    """A reward's file and the modules beside it that it imports, theirs included. Sorted."""
    pending, found = [path], set[Path]()
    while pending:
        file = pending.pop()
        if file in found:
            continue
        found.add(file)
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            beside = [file.parent.joinpath(*name.split(".")).with_suffix(".py") for name in names]
            pending += [other for other in beside if other.is_file()]
    return sorted(found)
