"""Every engine, runner and precision of the rollout on one warm-started toy model: seconds a step, start-up, mismatch.

python -m workflows bench --engines [--full]. A learning rate too small to move a weight keeps the two policies at the
same weights, so that each step's gap is the engines' alone. In process, one Python per engine trains its precisions one
after the other; each training on Ray has processes of its own, as in a pipeline, and pays its whole start-up. Without
--full Ray runs in the default precision only. Wall times: for a machine that does nothing else.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workflows.tools.bench.engine_table import DEFAULT, PRECISIONS, RUNNERS, Row, make_run, render
from workflows.tools.bench.runners import Usage


def measure_engines(steps: int, full: bool) -> int:
    """Print the tables as Markdown; progress goes to stderr."""
    from workflows.tools.mismatch.command import warm_start

    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        with contextlib.redirect_stdout(sys.stderr):
            warm_start(root, "qwen3", test_prompts=8)
        for engine, precisions in PRECISIONS.items():
            rows += in_process(root, engine, steps)
            for runner in list(RUNNERS)[1:]:
                for precision in precisions if full else [DEFAULT]:
                    print(f"[bench] {engine}, {runner}, {precision}", file=sys.stderr, flush=True)
                    # A step through verl's agent loops takes seconds: 10 ms for each of 512 responses.
                    rows.append(on_ray(root, engine, runner, precision, min(steps, 2)))
    print(render(rows))
    return 0


def in_process(root: Path, engine: str, steps: int) -> list[Row]:
    """All precisions of an engine, in one process of their own."""
    command = [sys.executable, "-m", "workflows.tools.bench.engines", str(root), engine, str(steps)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [Row(**json.loads(line)) for line in done.stdout.splitlines()]


def worker(root: Path, engine: str, steps: int) -> None:
    """What that process does: one JSON line per precision."""
    start = time.perf_counter()
    terminal = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        if engine == "vllm":
            import vllm  # noqa: F401
        import verl  # noqa: F401

        from methods.backend import plugin, trainer  # noqa: F401
        from methods.backend.compose import build_trainer

        imported = time.perf_counter() - start
        for precision in PRECISIONS[engine]:
            start = time.perf_counter()
            built = build_trainer(make_run(root, precision, engine, "in process", precision, steps))
            stages = {"imports": imported, "engines": time.perf_counter() - start}
            times, metrics = observe_steps(built)
            stages["first step"] = times[0]
            print(f"[bench] {engine}, in process, {precision}", file=sys.stderr, flush=True)
            print(json.dumps(vars(row(engine, "in process", precision, times, metrics, stages))), file=terminal)


def observe_steps(trainer: Any) -> tuple[list[float], list[dict[str, float]]]:
    """Fit; seconds and metrics of each step, validation and checkpoint left out."""
    from methods.backend.rollout.batch import BatchRolloutManager
    from methods.backend.run.log import canonical

    times: list[float] = []
    seen: list[dict[str, float]] = []
    inner = trainer._compute_metrics

    def after_step(batch: Any, metrics: dict[str, Any], timing_raw: dict[str, float], **kwargs: Any) -> None:
        inner(batch, metrics, timing_raw, **kwargs)
        times.append(timing_raw["step"])
        seen.append(canonical(metrics))

    trainer._compute_metrics = after_step
    trainer.config.trainer.val_before_train, trainer.config.trainer.test_freq = False, -1
    trainer.config.trainer.save_freq = -1
    trainer.fit(BatchRolloutManager(trainer.config, trainer.worker.rollout.generate))
    return times, seen


def row(
    engine: str,
    runner: str,
    precision: str,
    times: list[float],
    metrics: list[dict[str, float]],
    stages: dict[str, float],
    usage: str = "",
) -> Row:
    """The first step pays for what is initialised late; gaps are means over all steps."""
    gaps, divergences = ([data[name] for data in metrics] for name in ("gap/sampled_mean", "kl/topk_mean"))
    return Row(
        engine,
        runner,
        precision,
        statistics.median(times[1:]),
        statistics.fmean(gaps),
        statistics.fmean(divergences),
        stages,
        usage,
    )


def on_ray(root: Path, engine: str, runner: str, precision: str, steps: int) -> Row:
    """A training as a pipeline starts it, watch_command from outside."""
    name = f"{engine} {runner} {precision}".replace(",", "").replace(" ", "_")
    config = make_run(root, name, engine, runner, precision, steps)
    (root / f"{name}.json").write_text(json.dumps(config.dump()))
    log, work, usage, reached = root / f"{name}.log", config.work_dir, Usage(), {}
    signs = {
        "Ray": lambda: "Started a local Ray instance" in log.read_text(),
        "engines": lambda: _lines(work / "progress.jsonl") > 0,
        "first step": lambda: _lines(work / "metrics.jsonl") > 1,
    }
    with watch_command(
        [sys.executable, "-m", "methods.backend.launch", str(root / f"{name}.json")], log, usage
    ) as ticks:
        for _ in ticks:
            for sign, there in signs.items():
                if sign not in reached and there():
                    reached[sign] = time.perf_counter() - usage.start
                    usage.cpu_at_start = usage.cpu
    stages, before = {}, 0.0
    for sign, at in reached.items():
        stages[sign], before = at - before, at
    rows = [json.loads(line)["data"] for line in (root / name / "timing.jsonl").read_text().splitlines()]
    metrics = [json.loads(line)["data"] for line in (root / name / "metrics.jsonl").read_text().splitlines()]
    times = [data["timing_s/step"] for data in rows[1:]]
    used = f"{usage.cpu_at_start:.0f} CPU s, {usage.processes} processes, {usage.gigabytes:.1f} GB"
    return row(engine, runner, precision, times, metrics[1:], stages, used)


@contextlib.contextmanager
def watch_command(command: list[str], log: Path, usage: Usage) -> Iterator[Iterator[None]]:
    """Run a command; yields a tick every fifth of a second while it lives. Raises RuntimeError where it fails."""
    import psutil

    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
    seen = psutil.Process(process.pid)

    def ticks() -> Iterator[None]:
        for tick in itertools.count():
            if process.poll() is not None:
                return
            usage.look(seen, memory_too=tick % 25 == 24)
            yield
            time.sleep(0.2)

    try:
        yield ticks()
    finally:
        if process.poll() is None:
            # As Ctrl-C: the launcher then ends its Ray.
            process.send_signal(signal.SIGINT)
            process.wait()
    if process.returncode:
        raise RuntimeError(log.read_text()[-3000:])


def _lines(path: Path) -> int:
    return path.read_text().count("\n") if path.exists() else 0


if __name__ == "__main__":
    worker(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
