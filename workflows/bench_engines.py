"""Every engine, runner and precision of the rollout on one warm-started toy model: seconds a step, start-up, mismatch.

python -m workflows bench --engines [--full]. A learning rate too small to move a weight keeps the two policies at the
same weights, so that each step's gap is the engines' alone. In process, one Python per engine trains its precisions one
after the other; each training on Ray has processes of its own, as in a pipeline, and pays its whole start-up. Without
--full Ray runs in the default precision only. Wall times: for a machine that does nothing else.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from methods.backend.recipe import Cell, CellError
from workflows.bench import SIZES
from workflows.bench_runners import Usage

RUNNERS: dict[str, dict[str, Any]] = {
    "in process": {},
    "ray": {"runner": "ray"},
    "ray, server": {"runner": "ray", "server": True},
}
_BF16 = {"rollout_precision": "bf16"}
# Name in the table -> settings. hf imitates fp8 and int8; vLLM has kernels for them.
PRECISIONS: dict[str, dict[str, dict[str, Any]]] = {
    "hf": {name: {"rollout_precision": name} for name in ("fp32", "bf16", "fp16", "fp8", "int8")},
    "vllm": {
        **{name: {"rollout_precision": name} for name in ("fp32", "bf16", "fp16")},
        "fp8": {**_BF16, "rollout_quantization": "fp8_weights"},
        "fp8 cache": {**_BF16, "rollout_quantization": "fp8_kv"},
        "int8": {**_BF16, "rollout_quantization": "int8_w8a8"},
    },
}
DEFAULT = "bf16"
# Combinations that a reader may look for in vain; the reasons are those of the configuration's own check.
REFUSED: tuple[dict[str, Any], ...] = (
    {"rollout_engine": "vllm", "rollout_precision": "fp8"},
    {"rollout_engine": "vllm", "rollout_quantization": "fp8_weights", "rollout_precision": "fp32"},
    {"rollout_engine": "vllm", "rollout_quantization": "fp8"},
    {"rollout_engine": "vllm", "rollout_quantization": "fp8_per_block"},
    {"rollout_engine": "vllm", "rollout_quantization": "int8_per_channel_weight_only"},
    {"rollout_engine": "hf", "rollout_quantization": "int8_w8a8"},
    {"server": True},
)
STILL = 1e-12  # a learning rate
FIRST = "imports", "Ray", "engines", "first step"


@dataclass
class Row:
    """Of one training. stages: seconds of the start-up by name; usage: CPU seconds, processes, memory (Ray only)."""

    engine: str
    runner: str
    precision: str
    step: float
    gap: float
    kl: float
    stages: dict[str, float] = field(default_factory=dict)
    usage: str = ""


def measure_engines(steps: int, full: bool) -> int:
    """Print the tables as Markdown; progress goes to stderr."""
    from workflows.mismatch import warm_start

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


def make_cell(root: Path, name: str, engine: str, runner: str, precision: str, steps: int) -> Cell:
    """A cell of this table; no lag, and nothing learnt."""
    panel = {**SIZES, "lag": 0, "lr": STILL, "steps": steps + 2, "rollout_engine": engine}
    return Cell.build(
        {
            "label": "bench",
            "method": "dppo_topk_kl",
            "seed": 0,
            "panel": panel | RUNNERS[runner] | PRECISIONS[engine][precision],
            "model": str(root / "model"),
            "train_files": [str(root / "world" / "train.parquet")],
            "val_files": [str(root / "world" / "test.parquet")],
            "reward_function": {"path": str(Path(__file__).parent / "world" / "reward.py")},
            "output": str(root / name),
        }
    )


def in_process(root: Path, engine: str, steps: int) -> list[Row]:
    """All precisions of an engine, in one process of their own."""
    command = [sys.executable, "-m", "workflows.bench_engines", str(root), engine, str(steps)]
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
        from methods.backend.launch import build_trainer

        imported = time.perf_counter() - start
        for precision in PRECISIONS[engine]:
            start = time.perf_counter()
            built = build_trainer(make_cell(root, precision, engine, "in process", precision, steps))
            stages = {"imports": imported, "engines": time.perf_counter() - start}
            times, metrics = observed(built)
            stages["first step"] = times[0]
            print(f"[bench] {engine}, in process, {precision}", file=sys.stderr, flush=True)
            print(json.dumps(vars(row(engine, "in process", precision, times, metrics, stages))), file=terminal)


def observed(trainer: Any) -> tuple[list[float], list[dict[str, float]]]:
    """Fit; seconds and metrics of each step, validation and checkpoint left out."""
    from methods.backend.batch_rollout import BatchRolloutManager
    from methods.backend.run_log import canonical

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
    """A training as a pipeline starts it, watched from outside."""
    name = f"{engine} {runner} {precision}".replace(",", "").replace(" ", "_")
    cell = make_cell(root, name, engine, runner, precision, steps)
    (root / f"{name}.json").write_text(json.dumps(cell.dump()))
    log, work, usage, reached = root / f"{name}.log", cell.work_dir, Usage(), {}
    signs = {
        "Ray": lambda: "Started a local Ray instance" in log.read_text(),
        "engines": lambda: _lines(work / "progress.jsonl") > 0,
        "first step": lambda: _lines(work / "metrics.jsonl") > 1,
    }
    with watched([sys.executable, "-m", "methods.backend.launch", str(root / f"{name}.json")], log, usage) as ticks:
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
def watched(command: list[str], log: Path, usage: Usage) -> Iterator[Iterator[None]]:
    """Run a command; yields a tick every fifth of a second while it lives. Raises RuntimeError where it fails."""
    import psutil

    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
    seen = psutil.Process(process.pid)

    def ticks() -> Iterator[None]:
        while process.poll() is None:
            usage.look(seen)
            yield
            time.sleep(0.2)

    try:
        yield ticks()
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
    if process.returncode:
        raise RuntimeError(log.read_text()[-3000:])


def _lines(path: Path) -> int:
    return path.read_text().count("\n") if path.exists() else 0


def render(rows: list[Row]) -> str:
    """Steps and mismatch of every row, start-up of each engine and runner, what is refused, and the limits."""
    by = {(r.engine, r.runner, r.precision): r for r in rows}
    base = by["hf", "in process", DEFAULT].step
    heads = ["engine", "runner", "precision", "s a step", "ratio", "mean abs log-prob gap", "reduced KL"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    lines += [
        f"| {r.engine} | {r.runner} | {r.precision} | {r.step:.2f} | {r.step / base:.2f} | {r.gap:.1e} | {r.kl:.1e} |"
        for r in rows
    ]
    lines += ["", f"| start-up ({DEFAULT}), s | {' | '.join(FIRST)} | whole | |", "|---" * (len(FIRST) + 3) + "|"]
    for r in rows:
        if r.precision == DEFAULT:
            cells = " | ".join(f"{r.stages[name]:.1f}" if name in r.stages else "" for name in FIRST)
            lines.append(f"| {r.engine}, {r.runner} | {cells} | {sum(r.stages.values()):.1f} | {r.usage} |")
    lines += ["", *(f"- {reason}" for reason in refusals()), ""]
    return "\n".join([*lines, *limits(by)])


def limits(rows: dict[tuple[str, str, str], Row]) -> list[str]:
    """What is promised of engines and runners, beside what was measured."""
    hf, vllm, ray = (rows[e, r, DEFAULT] for e, r in (("hf", "in process"), ("vllm", "in process"), ("hf", "ray")))
    whole = [sum(row.stages.values()) for row in (hf, vllm, ray)]
    return [
        f"A step with vLLM costs {vllm.step / hf.step:.2f} of one with hf (at most 2), a step on Ray "
        f"{ray.step / hf.step:.2f} of one in process (at most 3).",
        f"The first step ends after {whole[1]:.1f} s with vLLM in process (at most 15), {whole[1] - whole[0]:.1f} s "
        f"after the one with hf, and after {whole[2]:.1f} s on Ray (at most 45).",
    ]


def refusals() -> list[str]:
    """Why each combination of REFUSED is refused."""
    found = []
    for settings in REFUSED:
        try:
            Cell.build(
                {
                    "label": "bench",
                    "method": "dppo_topk_kl",
                    "seed": 0,
                    "panel": {**SIZES, "lr": STILL, "steps": 1, **settings},
                    "model": "",
                    "train_files": [],
                    "val_files": [],
                    "reward_function": {"path": ""},
                    "output": "",
                }
            )
        except CellError as error:
            found.append(str(error))
    return found


if __name__ == "__main__":
    worker(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
