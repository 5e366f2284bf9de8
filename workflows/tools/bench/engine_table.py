"""The tables of `bench --engines`: which engines, runners and precisions there are, and what was measured of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from methods.backend.run_config import RunConfig
from methods.backend.setting import ConfigError, Setting
from workflows.tools.bench.step import SIZES
from workflows.tools.toy import toy_run

RUNNERS: dict[str, dict[str, Any]] = {
    "in process": {},
    "ray": {"runner": "ray"},
    "ray, server": {"runner": "ray", "server": True},
}
_BF16 = {"rollout_precision": "bf16"}
# Name in the table -> settings, the default first: it pays for what an engine loads late. hf imitates fp8 and int8;
# vLLM has kernels for them.
PRECISIONS: dict[str, dict[str, dict[str, Any]]] = {
    "hf": {name: {"rollout_precision": name} for name in ("bf16", "fp32", "fp16", "fp8", "int8")},
    "vllm": {
        **{name: {"rollout_precision": name} for name in ("bf16", "fp32", "fp16")},
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


def make_run(root: Path, name: str, engine: str, runner: str, precision: str, steps: int) -> RunConfig:
    """A run of this table; no staleness, and nothing learnt."""
    setting = {**SIZES, "staleness": 0, "lr": STILL, "steps": steps + 2, "rollout_engine": engine}
    return toy_run(root, name, setting | RUNNERS[runner] | PRECISIONS[engine][precision])


def render(rows: list[Row]) -> str:
    """Steps and mismatch of every row, start-up of each engine and runner, what is refused, and the limits."""
    by = {(r.engine, r.runner, r.precision): r for r in rows}
    base = by["hf", "in process", DEFAULT].step
    heads = ["engine", "runner", "precision", "seconds per step", "ratio", "mean abs log-prob gap", "reduced KL"]
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
            Setting(**{**SIZES, "lr": STILL, "steps": 1, **settings})
        except ConfigError as error:
            found.append(str(error))
    return found
