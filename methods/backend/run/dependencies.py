"""What a run depends on: the modules of ours that its program imports, its model, data and reward.

One answer for Snakemake's inputs and for the restart fingerprint. Imports are read from the sources, not carried out:
a module counts that any function of the program may import, whether or not this run comes to it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import methods
from methods import registry
from methods.backend.run.model_folder import training_files
from methods.backend.run_config import RunConfig
from methods.backend.tokens.settings import PROBE

ROOT = Path(methods.__file__).parent.parent
TRAINING = "methods.backend.launch"
# verl and Hydra are given classes by name: "methods.backend.rollout.base.HFRollout".
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.\w+)+")


def program_files(*modules: str) -> list[Path]:
    """Files below the project's root that these modules are made of, imports of imports included. Sorted."""
    rooms = {path.stem for path in ROOT.iterdir()}
    pending, asked, found = list(modules), set[str](), set[Path]()
    while pending:
        module = pending.pop()
        # Most imports are of other packages.
        if module in asked or module.partition(".")[0] not in rooms:
            continue
        asked.add(module)
        for path in _files_of(module):
            if path not in found:
                found.add(path)
                pending += _imported_by(path, path.stat().st_mtime_ns)
    return sorted(found)


def training_modules(run: RunConfig) -> tuple[str, ...]:
    """The modules that a training starts; of the catalogue, its method and the probe's where it records tokens.

    A process imports the whole catalogue to register it; the other methods' files decide nothing of its run.
    """
    names = [run.method]
    if run.setting.tokens is not None and run.setting.tokens.update == "unmasked":
        names.append(PROBE)
    return (TRAINING, *(registry.get(name).module for name in names))


def training_program(run: RunConfig) -> list[Path]:
    """Files that a training is made of. Sorted."""
    return program_files(*training_modules(run))


def files_read(run: RunConfig) -> list[Path]:
    """Model, data, chat template, and the reward with the modules beside it that it imports."""
    return training_files(run)


def _files_of(module: str) -> list[Path]:
    """A module's own file and the `__init__.py` of the packages above it; none where it is not ours."""
    parts = module.split(".")
    packages = [ROOT.joinpath(*parts[:i], "__init__.py") for i in range(1, len(parts) + 1)]
    return [path for path in [*packages, ROOT.joinpath(*parts).with_suffix(".py")] if path.is_file()]


@cache
def _imported_by(path: Path, changed: int) -> tuple[str, ...]:
    """Names that may be modules of ours; `changed` is the file's time stamp, so that an edited one is read again."""
    package = path.relative_to(ROOT).parent.parts
    return tuple(_names(ast.parse(path.read_text()), package))


def _names(node: ast.AST, package: tuple[str, ...]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        above = package[: len(package) + 1 - node.level] if node.level else ()
        module = ".".join([*above, *([node.module] if node.module else [])])
        # `from package import name`: the name may be a module itself.
        yield from (module, *(f"{module}.{alias.name}" for alias in node.names))
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _DOTTED.fullmatch(node.value):
        yield from (node.value, node.value.rpartition(".")[0])
    elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        for branch in node.orelse:
            yield from _names(branch, package)
        return
    for child in ast.iter_child_nodes(node):
        yield from _names(child, package)
