"""Run tests in run_in_fork children: torch, pytest and hypothesis are imported once, the code under test in every
child.

This is why there is a runner of our own. cosmic-ray starts a process for each mutant, of which three seconds are
torch's import; mutmut forks, but leaves decorated functions alone, and every coefficient here is decorated.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import gc
import importlib.machinery
import importlib.util
import json
import math
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import CodeType
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
MEMORY = 16 << 30  # of address space, for a mutant that allocates without end


def preload() -> None:
    """Import what the children share; never the code under test."""
    import hypothesis  # noqa: F401
    import numpy  # noqa: F401
    import pytest  # noqa: F401
    import torch

    torch.set_num_threads(1)  # a pool of threads does not survive a fork
    torch.ones(2).sum()
    gc.freeze()  # a child's collections need not walk through what all of them share
    loaded = sorted(name for name in sys.modules if name.partition(".")[0] == "methods")
    if loaded:
        raise RuntimeError(f"{loaded[0]} is imported already: a child could not replace it")


def run_in_fork(work: Callable[[], int], limit: float) -> int:
    """Exit status of `work` in a child with its output thrown away; minus the signal's number where one ended it.

    A child is stopped after `limit` CPU seconds, which a busy machine does not change, or twenty times that by the
    clock, if it only waits.
    """
    child = os.fork()
    if child == 0:
        status = 70
        try:
            null = os.open(os.devnull, os.O_RDWR)
            for stream in range(3):
                os.dup2(null, stream)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(limit), math.ceil(limit)))
            status = work()
        finally:
            os._exit(status)  # no clean-up of the parent's state, and no traceback of a broken mutant
    end = time.monotonic() + 20 * limit
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def pytest_status(arguments: Sequence[str], plugins: Sequence[Any] = ()) -> int:
    """pytest's exit status: 0 green, 1 red, 2 and above broken."""
    import pytest

    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    # Plugins that other packages bring along (hydra, anyio) cost a second in every child.
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    quiet = ["-q", "--no-header", "-p", "no:cacheprovider", "-p", "no:faulthandler", "--tb=no", "--assert=plain"]
    return int(pytest.main([*quiet, *arguments], list(plugins)))


class Replaced(importlib.machinery.SourceFileLoader):
    """Loads a module of the code under test from a changed tree."""

    tree: ast.Module

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.tree, self.path, "exec", dont_inherit=True)


class Finder:
    """A meta path entry that hands out modules from changed trees: {file: tree}."""

    def __init__(self, trees: Mapping[Path, ast.Module]) -> None:
        self.modules = {}
        for path, tree in trees.items():
            parts = path.relative_to(ROOT).with_suffix("").parts
            self.modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = (path, tree)

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname not in self.modules:
            return None
        file, tree = self.modules[fullname]
        loader = Replaced(fullname, str(file))
        loader.tree = tree
        places = [str(file.parent)] if file.name == "__init__.py" else None
        return importlib.util.spec_from_file_location(
            fullname, str(file), loader=loader, submodule_search_locations=places
        )


def kill(path: Path, tree: ast.Module, tests: Sequence[str], limit: float) -> int:
    """Run `tests` against the changed module: 0 if it survives, else pytest's status or minus a signal's number."""

    def work() -> int:
        sys.meta_path.insert(0, Finder({path: tree}))
        return pytest_status(["-x", *tests])

    return run_in_fork(work, limit)


class Recorder:
    """A pytest plugin: which functions of the code under test each test calls, and how many CPU seconds it takes."""

    def __init__(self) -> None:
        self.calls: dict[str, set[tuple[str, int]]] = {}
        self.seconds: dict[str, float] = {}
        self.current: set[tuple[str, int]] = set()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.current = self.calls.setdefault(nodeid, set())
        self.seconds[nodeid] = time.process_time()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.seconds[nodeid] = time.process_time() - self.seconds[nodeid]
        self.current = set()

    def was_called(self, file: str, line: int) -> None:
        self.current.add((file, line))


def report_calls(path: Path) -> ast.Module:
    """The file's tree in which every function first reports itself: far cheaper than tracing every call there is."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            report = ast.parse(f"__called__({str(path.relative_to(ROOT))!r}, {node.lineno})").body
            place = 1 if ast.get_docstring(node, clean=False) is not None else 0
            node.body[place:place] = report
    return ast.fix_missing_locations(tree)


def record(
    files: Sequence[Path], tests: Sequence[str], limit: float = 600
) -> tuple[dict[str, list[Any]], dict[str, float]]:
    """({test: [(file, line) of called functions]}, {test: CPU seconds}) of a green run of all tests.

    Raises RuntimeError where the tests fail without any fault, which would make every mutant look killed.
    """
    with tempfile.TemporaryDirectory() as place:
        output = Path(place) / "calls.json"

        def work() -> int:
            recorder = Recorder()
            builtins.__called__ = recorder.was_called  # type: ignore[attr-defined]
            sys.meta_path.insert(0, Finder({path: report_calls(path) for path in files}))
            status = pytest_status(tests, [recorder])
            calls = {name: sorted(found) for name, found in recorder.calls.items()}
            output.write_text(json.dumps([calls, recorder.seconds]))
            return status

        status = run_in_fork(work, limit)
        if status != 0:
            raise RuntimeError(f"the tests end with status {status} on unchanged code: run pytest {' '.join(tests)}")
        with contextlib.closing(output.open()) as file:
            calls, seconds = json.load(file)
    return calls, seconds
