"""Trainings on Ray as processes of their own, and how a test sees what runs of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MARK = "TETHER_TEST_RUN"


@dataclass
class Running:
    """A launcher in a folder with a blank in its name; every process it starts inherits the mark."""

    process: subprocess.Popen[str]
    output: Path
    mark: str

    @classmethod
    def start(cls, run: Any, folder: Path) -> Running:
        output = folder / run.output
        description = folder / f"{output.name}.json"
        description.write_text(json.dumps(run.dump()))
        mark = uuid.uuid4().hex
        # Nobody listens there: what a Ray that was once used leaves in the environment.
        environment = {**os.environ, MARK: mark, "RAY_ADDRESS": "127.0.0.1:9"}
        process = subprocess.Popen(
            [sys.executable, "-m", "methods.backend.launch", description.name],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        return cls(process, output, mark)

    def finish(self) -> str:
        text, _ = self.process.communicate(timeout=500)
        assert self.process.returncode == 0, text
        return text

    def left(self) -> list[str]:
        """Command lines of living processes that carry the mark."""
        return list(alive(self.mark).values())

    def rows(self) -> int:
        log = self.output.with_name(f"{self.output.name}.work") / "metrics.jsonl"
        return len(log.read_text().splitlines()) if log.exists() else 0

    def kill(self, title: str) -> None:
        """SIGKILL to the process of this training that is called so."""
        (pid,) = [pid for pid, line in alive(self.mark).items() if line.startswith(title)]
        os.kill(pid, signal.SIGKILL)


def alive(mark: str) -> dict[int, str]:
    """Command lines of the living processes with this mark."""
    found = {}
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and f"{MARK}={mark}".encode() in (folder / "environ").read_bytes():
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
    return found


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.05)
