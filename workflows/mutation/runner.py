"""Run tests in forked children: torch, pytest and hypothesis are imported once, the code under test in every child.

This is why there is a runner of our own. cosmic-ray starts a process for each mutant, of which three seconds are
torch's import; mutmut forks, but leaves decorated functions alone, and every coefficient here is decorated.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import importlib.machinery
import importlib.util
import json
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
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


def forked(work: Callable[[], int], limit: float) -> int | None:
    """Exit status of `work` in a child with its output thrown away; None if it ran longer than `limit` seconds."""
    child = os.fork()
    if child == 0:
        status = 70
        try:
            null = os.open(os.devnull, os.O_RDWR)
            for stream in range(3):
                os.dup2(null, stream)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            status = work()
        finally:
            os._exit(status)  # no clean-up of the parent's state, and no traceback of a broken mutant
    end = time.monotonic() + limit
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


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
    """Loads one module of the code under test from a changed tree."""

    tree: ast.Module

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.tree, self.path, "exec", dont_inherit=True)


class Finder:
    """A meta path entry that hands out the changed module and nothing else."""

    def __init__(self, path: Path, tree: ast.Module) -> None:
        parts = path.relative_to(ROOT).with_suffix("").parts
        self.name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        self.path, self.tree = path, tree

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname != self.name:
            return None
        loader = Replaced(fullname, str(self.path))
        loader.tree = self.tree
        places = [str(self.path.parent)] if self.path.name == "__init__.py" else None
        return importlib.util.spec_from_file_location(
            fullname, str(self.path), loader=loader, submodule_search_locations=places
        )


def kill(path: Path, tree: ast.Module, tests: Sequence[str], limit: float) -> int | None:
    """Run `tests` against the changed module: 0 if it survives, else pytest's status, None for a time-out."""

    def work() -> int:
        sys.meta_path.insert(0, Finder(path, tree))
        return pytest_status(["-x", *tests])

    return forked(work, limit)


class Recorder:
    """A pytest plugin: which functions of the code under test each test calls, and how long it takes."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder) + os.sep
        self.calls: dict[str, set[tuple[str, int]]] = {}
        self.seconds: dict[str, float] = {}
        self.current: set[tuple[str, int]] = set()

    def pytest_runtest_protocol(self, item: Any) -> None:
        self.start(item.nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.seconds[nodeid] = time.process_time() - self.seconds[nodeid]
        sys.settrace(None)

    def start(self, nodeid: str) -> None:
        self.current = self.calls.setdefault(nodeid, set())
        self.seconds[nodeid] = time.process_time()
        sys.settrace(self.trace)

    def trace(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if code.co_filename.startswith(self.folder):
            self.current.add((code.co_filename, code.co_firstlineno))


def record(folder: Path, tests: Sequence[str], limit: float = 900) -> tuple[dict[str, list[Any]], dict[str, float]]:
    """({test: [(file, first line) of called functions]}, {test: CPU seconds}) of a green run of all tests.

    Raises RuntimeError where the tests fail without any fault, which would make every mutant look killed.
    """
    with tempfile.TemporaryDirectory() as place:
        output = Path(place) / "calls.json"

        def work() -> int:
            recorder = Recorder(folder)
            status = pytest_status(tests, [recorder])
            calls = {name: sorted(found) for name, found in recorder.calls.items()}
            output.write_text(json.dumps([calls, recorder.seconds]))
            return status

        status = forked(work, limit)
        if status != 0:
            raise RuntimeError(f"the tests end with status {status} on unchanged code: run pytest {' '.join(tests)}")
        with contextlib.closing(output.open()) as file:
            calls, seconds = json.load(file)
    return calls, seconds
