"""What the runners cost: start-up, seconds per step by stage, processes and memory, on the world of `bench`.

python -m workflows.tools.bench.runners [--steps 8] [--runners inprocess ray server]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from workflows.tools.bench.step import LR, SIZES, make_world
from workflows.tools.toy import toy_run

RUNNERS: dict[str, dict[str, Any]] = {
    "inprocess": {},
    "ray": {"runner": "ray"},
    "server": {"runner": "ray", "server": True},
}
STAGES = ("gen", "old_log_prob", "adv", "update_actor", "update_weights", "step")


@dataclass
class Usage:
    """Of a launcher and all it started: wall and CPU seconds, most processes at once, most memory (PSS) at once."""

    start: float = field(default_factory=time.perf_counter)
    start_up: float = 0.0
    cpu_at_start: float = 0.0
    wall: float = 0.0
    processes: int = 0
    gigabytes: float = 0.0
    seconds_by_process: dict[int, float] = field(default_factory=dict)

    @property
    def cpu(self) -> float:
        return sum(self.seconds_by_process.values())

    def look(self, process: psutil.Process, memory_too: bool = True) -> None:
        """Once; proportional memory costs the kernel milliseconds a process, which the measured ones lack."""
        alive, memory = 0, 0
        for each in [process, *process.children(recursive=True)]:
            try:
                times, held = each.cpu_times(), each.memory_full_info().pss if memory_too else 0
            except psutil.Error:
                continue
            alive, memory = alive + 1, memory + held
            self.seconds_by_process[each.pid] = times.user + times.system
        self.processes, self.gigabytes = max(self.processes, alive), max(self.gigabytes, memory / 1e9)


def run(root: Path, name: str, steps: int) -> tuple[Usage, list[dict[str, float]]]:
    """Train in a process of its own, as a pipeline does; usage, and the timings of each step but the first."""
    config = toy_run(root, name, {**SIZES, **RUNNERS[name], "lr": LR, "steps": steps + 1})
    (root / f"{name}.json").write_text(json.dumps(config.dump()))
    usage = Usage()
    with (root / f"{name}.log").open("w") as log:
        command = [sys.executable, "-m", "methods.backend.launch", str(root / f"{name}.json")]
        process = subprocess.Popen(command, stdout=log, stderr=log)
        watched = psutil.Process(process.pid)
        while process.poll() is None:
            usage.look(watched)
            first = config.work_dir / "metrics.jsonl"
            if not usage.start_up and first.exists() and first.stat().st_size:
                usage.start_up, usage.cpu_at_start = time.perf_counter() - usage.start, usage.cpu
            time.sleep(0.2)
    usage.wall = time.perf_counter() - usage.start
    if process.returncode:
        raise RuntimeError((root / f"{name}.log").read_text()[-3000:])
    rows = [json.loads(line) for line in (root / name / "timing.jsonl").read_text().splitlines()]
    return usage, [row["data"] for row in rows if 1 < row["step"] <= steps]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m workflows.tools.bench.runners", description=__doc__)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--runners", nargs="+", choices=RUNNERS, default=["inprocess", "ray"])
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        make_world(root, args.steps)
        for name in args.runners:
            usage, timings = run(root, name, args.steps)
            stages = {
                stage: round(statistics.median(row.get(f"timing_s/{stage}", 0.0) for row in timings), 3)
                for stage in STAGES
            }
            print(
                f"{name:10s} start-up {usage.start_up:.1f} s ({usage.cpu_at_start:.0f} CPU-s), step "
                f"{statistics.median(row['wall_s'] for row in timings):.3f} s, whole {usage.wall:.1f} s "
                f"({usage.cpu:.0f} CPU-s), {usage.processes} processes, {usage.gigabytes:.2f} GB; {json.dumps(stages)}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
