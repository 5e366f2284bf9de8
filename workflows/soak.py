"""Kill a training at random moments, again and again, until it ends; then it must equal one that was left alone."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

PANEL = {"lr": 1e-3, "prompts": 8, "group": 4, "mini_batches": 2, "lag": 2, "top_k": 5}


def soak(kills: int, seed: int) -> int:
    """Print each kill; 0 when the killed run's metrics and weights equal the other's to the last byte."""
    random = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        _prepare(root)
        # Long enough that the kills, each worth a step or two of progress, end before the training does.
        steps = 5 * kills
        _run(root, "whole", steps)
        done, finished = 0, False
        while not finished:
            moment = _moment(random) if done < kills else None
            finished = _run(root, "killed", steps, moment)
            if not finished:
                done += 1
                print(f"[soak] kill {done}/{kills} at step {_rows(root, 'killed')}", flush=True)
        equal = _contents(root / "killed") == _contents(root / "whole")
    print(f"[soak] {done} kills, {steps} steps: {'equal to the uninterrupted run' if equal else 'DIFFERENT'}")
    return 0 if equal else 1


def _prepare(root: Path) -> None:
    from workflows.world import build, warm_start
    from workflows.world.sorting import SortingWorld

    world = SortingWorld(numbers=3, limit=40, train_prompts=256, test_prompts=16, seed=0)
    build.write(world, root / "world")
    warm_start.make_model(world, warm_start.ModelSize(32, 1, 1), seed=0).save_pretrained(root / "model")
    warm_start.AutoTokenizer.from_pretrained(root / "world" / "tokenizer").save_pretrained(root / "model")


def _cell(root: Path, name: str, steps: int) -> dict[str, Any]:
    sizes = {"steps": steps, "save_every": 1, "validate_every": 5, "prompt_length": 5, "response_length": 4}
    return {
        "label": "soak",
        "method": "dppo_topk_kl",
        "seed": 0,
        "panel": {**PANEL, **sizes},
        "model": str(root / "model"),
        "train_files": [str(root / "world" / "train.parquet")],
        "val_files": [str(root / "world" / "test.parquet")],
        "reward_function": {"path": str(Path(__file__).parent / "world" / "reward.py")},
        "output": str(root / name),
    }


def _moment(random: np.random.Generator) -> tuple[int, float]:
    """(new rows to wait for, seconds after that): one kill in four falls into the start-up, the others among steps."""
    if random.random() < 0.25:
        return 0, float(random.uniform(0.0, 10.0))
    return int(random.integers(1, 4)), float(random.uniform(0.0, 0.5))


def _run(root: Path, name: str, steps: int, moment: tuple[int, float] | None = None) -> bool:
    """Whether the training ended by itself; at `moment` its process group is killed."""
    command = [sys.executable, "-m", "methods.backend.launch", "--json", json.dumps(_cell(root, name, steps))]
    with (root / f"{name}.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        if moment is not None:
            rows, delay = moment
            target = _rows(root, name) + rows
            while process.poll() is None and rows and _rows(root, name) < target:
                time.sleep(0.002)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(delay)
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return False
        process.wait()
    if process.returncode:
        raise RuntimeError(f"the training failed:\n{(root / f'{name}.log').read_text()[-2000:]}")
    return True


def _rows(root: Path, name: str) -> int:
    """Rows of the running training's log; a resumed run drops those past its restart point."""
    log = root / f"{name}.work" / "metrics.jsonl"
    return len(log.read_text().splitlines()) if log.exists() else 0


def _contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "timing.jsonl"
    }
