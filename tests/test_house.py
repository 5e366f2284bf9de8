"""Claim: imports go one way. No circle between our modules, and each room imports only what it may.

Imports inside functions count as well, and a module that is named in a text (a class path of verl's, a command of a
rule, a page) is there. Not covered: names that are put together when a program runs, and modules right below a room.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("methods", "eval", "derivations", "workflows")
# The engines of a training; one room knows them.
ENGINES = {"verl", "ray", "vllm", "transfer_queue"}


def modules() -> dict[str, Path]:
    """{module: file} of our rooms."""
    found = {}
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imported(module: str) -> Iterator[str]:
    """Names that a module imports, in full: modules, or names inside of them."""
    path = MODULES[module]
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{name.name}" for name in node.names)


def ours(name: str) -> str | None:
    """The module of ours that an imported name is or lies in."""
    parts = name.split(".")
    candidates = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
    return next((candidate for candidate in candidates if candidate in MODULES), None)


def test_no_two_modules_import_each_other_in_a_circle() -> None:
    # A package's own file lists its modules; a module that imports the package does not thereby import itself.
    graph = {
        module: {found for name in imported(module) if (found := ours(name)) not in (None, module)}
        for module, path in MODULES.items()
        if path.name != "__init__.py"
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def room_of(module: str) -> str:
    return "backend" if module.startswith("methods.backend") else module.split(".")[0]


# What a room must not import: rooms of ours, and packages.
FORBIDDEN = {
    "methods": {"backend", "eval", "derivations", "workflows", *ENGINES, "sympy", "matplotlib", "pandas"},
    "backend": {"eval", "derivations", "workflows", "sympy", "matplotlib"},
    "derivations": {"methods", "backend", "eval", "workflows", *ENGINES, "torch"},
    "eval": {"backend", "derivations", "workflows", *ENGINES},
    "workflows": {*ENGINES, "sympy"},
}


@pytest.mark.parametrize("room", FORBIDDEN)
def test_a_room_imports_only_what_it_may(room: str) -> None:
    """A program's entry, `__main__`, may hand work to any room: nothing imports it. The tools measure the engines."""
    wrong = []
    for module in MODULES:
        if room_of(module) != room or module.endswith("__main__") or module.startswith("workflows.tools."):
            continue
        for name in imported(module):
            found = ours(name)
            target = room_of(found) if found else name.split(".")[0]
            if target in FORBIDDEN[room]:
                wrong.append(f"{module} imports {name}")
    assert not wrong, "\n".join(wrong)


# A module below a package of ours, as texts name it: after no word, point or slash, before no slash. Names right below
# a room are left out, since configurations have keys such as `methods.drpo`.
PACKAGES = {name for name, path in MODULES.items() if path.name == "__init__.py" and "." in name}
NAMED = re.compile(
    r"(?:(?<=pkg://)|(?<![\w./~-]))((?:methods|eval|derivations|workflows)(?:\.[A-Za-z]\w*){2,})(?![\w/])"
)


def test_modules_named_in_texts_are_there() -> None:
    """A file that moves takes its name with it also where no import says so."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    ends = (".py", ".smk", ".yaml", ".toml", ".md", "Makefile", "Snakefile", "run")
    wrong = set()
    for path in listed:
        # Names of earlier versions; made-up methods.
        if (
            not path.endswith(ends)
            or path.startswith("results/")
            or path in ("CHANGELOG.md", "tests/methods/test_registry.py")
        ):
            continue
        for name in NAMED.findall((ROOT / path).read_text()):
            package = max((known for known in PACKAGES if name.startswith(f"{known}.")), key=len, default=None)
            if package is None:
                continue
            below = name.removeprefix(f"{package}.").split(".")[0]
            if f"{package}.{below}" not in MODULES and below not in MODULES[package].read_text():
                wrong.add(f"{path}: {name}")
    assert not wrong, "\n".join(sorted(wrong))
