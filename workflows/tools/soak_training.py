"""A training that is killed at a moment of our choice, for `workflows.tools.soak`."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from workflows.tools.toy import make_toy, toy_run

SAVE_EVERY = 2
SETTING = {
    "lr": 1e-3,
    "prompts": 8,
    "group": 4,
    "mini_batches": 2,
    "staleness": 2,
    "top_k": 5,
    "reference_kl": 0.01,
    "save_every": SAVE_EVERY,
    "export_every": 2 * SAVE_EVERY,
    "validate_every": 5,
    "prompt_length": 5,
    "response_length": 4,
}
RUNNERS: dict[str, dict[str, Any]] = {
    "inprocess": {"runner": "inprocess"},
    "ray": {"runner": "ray"},
    "server": {"runner": "ray", "server": True},
}
LAUNCHER = "launcher"
# A launcher whose Ray has lost a process ends within this; without the watch some losses hang for good.
BOUND_SECONDS = 90.0
MARK = "TETHER_SOAK"


@dataclass(frozen=True)
class Kill:
    """SIGKILL to `victim`, `delay` seconds after the moment.

    `start-up`: of the process. `step`: `rows` new rows in the log. `save`: a new checkpoint's folder, which is written
    within a few hundredths of a second. `end`: the last row, with export and publication still to come.
    """

    moment: str
    victim: str
    rows: int
    delay: float


class Training:
    """One run, trained by as many processes as it takes."""

    def __init__(self, root: Path, name: str, steps: int, runner: str) -> None:
        self.root, self.output, self.steps = root, root / name, steps
        self.work = root / f"{name}.work"
        self.mark = uuid.uuid4().hex
        self.log = root / f"{name}.log"
        run = toy_run(root, name, {**SETTING, **RUNNERS[runner], "steps": steps})
        self._command = [sys.executable, "-m", "methods.backend.launch", "--json"]
        self._command.append(json.dumps(run.dump()))

    def run(self, kill: Kill | None = None) -> bool:
        """Whether `kill` hit the training before it ended by itself. Raises RuntimeError where it fails unasked."""
        with self.log.open("w") as log:
            environment = {**os.environ, MARK: self.mark}
            process = subprocess.Popen(self._command, stdout=log, stderr=log, start_new_session=True, env=environment)
        if kill is not None and self._await(process, kill) and self._hit(process, kill):
            return True
        if process.wait():
            raise RuntimeError(f"the training failed:\n{self.log.read_text()[-2000:]}")
        return False

    def _await(self, process: subprocess.Popen[bytes], kill: Kill) -> bool:
        """Whether the moment came before the end."""
        rows, saves = self.rows(), self._unsealed()
        reached: dict[str, Callable[[], bool]] = {
            "start-up": lambda: True,
            "step": lambda: self.rows() >= rows + kill.rows,
            "save": lambda: bool(self._unsealed() - saves),
            "end": lambda: self.rows() > self.steps,
        }
        while process.poll() is None and not reached[kill.moment]():
            time.sleep(0.002)
        time.sleep(kill.delay)
        return process.poll() is None

    def _hit(self, process: subprocess.Popen[bytes], kill: Kill) -> bool:
        if kill.victim == LAUNCHER:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return True
        hit = [each for each in self.living_processes() if _title(each).startswith(kill.victim)]
        for each in hit:
            each.kill()
        if not hit:
            return False
        try:
            process.wait(BOUND_SECONDS)
        except subprocess.TimeoutExpired:
            raise RuntimeError(
                f"{kill.victim} was killed, and {BOUND_SECONDS:.0f} s later the launcher still runs"
            ) from None
        left = [_title(each) for each in self.living_processes()]
        if left:
            raise RuntimeError(f"after {kill.victim} was killed the launcher has left {', '.join(left)} running")
        return process.returncode != 0

    def living_processes(self) -> list[psutil.Process]:
        """Living processes of this training, whoever is their parent."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def rows(self) -> int:
        """Rows of the log, step 0 included; a resumed run drops those past its restart point."""
        log = self.work / "metrics.jsonl"
        return log.read_text().count("\n") if log.exists() else 0

    def is_saving(self) -> bool:
        """Whether a restart point is there that is not complete."""
        return bool(self._unsealed())

    def resumed_from(self) -> int | None:
        """The step that the latest process went on from; None where it did not come so far."""
        text = self.log.read_text()
        found = re.search(r"goes on after step (\d+)", text)
        return int(found[1]) if found else 0 if "ray init" in text or "Training Progress" in text else None

    def contents(self) -> dict[str, bytes]:
        """Everything published but the timings."""
        return {
            str(path.relative_to(self.output)): path.read_bytes()
            for path in sorted(self.output.rglob("*"))
            if path.is_file() and path.name != "timing.jsonl"
        }

    def _unsealed(self) -> set[str]:
        folders = (self.work / "verl").glob("global_step_*")
        return {folder.name for folder in folders if not (folder / "tether_seal.json").exists()}


def _title(process: psutil.Process) -> str:
    try:
        command = " ".join(process.cmdline())
        return command if command.startswith("ray::") else process.name()
    except psutil.Error:
        return ""


def prepare(root: Path) -> None:
    """The toy world and a model of it that earns a reward now and then: else a resumed run could get nothing wrong."""
    from workflows.world.sorting import SortingWorld
    from workflows.world.warm_start import ModelSize, Training

    world = SortingWorld(numbers=3, limit=40, train_prompts=256, test_prompts=16, seed=0)
    training = Training(target=0.2, batch=128, lr=4e-3, check_every=25, check_prompts=64)
    make_toy(root, world, ModelSize(32, 1, 1), training)
