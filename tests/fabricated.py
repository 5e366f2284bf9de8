"""Test data: a tier's results made of invented numbers, in the files that real runs leave. No training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

STEPS = 4


def write_run(results: Path, setting: str, variant: str, seed: int, reward: float, **settings: Any) -> Path:
    """A published run of `STEPS` steps whose reward rises by 0.01 a step from `reward`, scored on 20 problems."""
    place = f"setting~{setting}/variant~{variant}/seed~{seed}"
    run = results / "runs" / place
    run.mkdir(parents=True)
    given = {"lr": 0.0002, "staleness": 0, "steps": STEPS, "train_precision": "fp32", "rollout_precision": "bf16"}
    given |= settings
    config = {
        "variant": variant,
        "method": "drpo" if variant.startswith("drpo") else variant,
        "options": {},
        "seed": seed,
        "setting": given,
        "setting_name": setting,
        "model": "results/made/warm_starts/s-sort_6_200-ws0",
        "train_files": ["results/made/worlds/sort_6_200/train.parquet"],
    }
    (run / "manifest.json").write_text(json.dumps({"run": config, "setting": given, "versions": {"verl": "1"}}))
    rows = [{"step": 0, "data": {"val/accuracy": 0.4}}]
    for step in range(1, STEPS + 1):
        data = {"reward/mean": reward + 0.01 * step, "lr": 0.0001 * step}
        rows.append({"step": step, "data": data | ({"val/accuracy": reward} if step == STEPS else {})})
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    walls = [{"step": row["step"], "data": {"wall_s": 2.0}} for row in rows]
    (run / "timing.jsonl").write_text("".join(json.dumps(row) + "\n" for row in walls))
    scores = results / "scores" / f"{place}.json"
    scores.parent.mkdir(parents=True, exist_ok=True)
    value = {"value": round(reward * 20) / 20, "stderr": 0.1, "n": 20}
    scores.write_text(json.dumps({"checkpoints": [{"step": STEPS, "metrics": {"avg@4": value}}]}))
    samples = [
        {"step": STEPS, "problem": problem, "outcomes": [int(problem < round(reward * 20))] * 4}
        for problem in range(20)
    ]
    path = scores.with_name(f"seed~{seed}.samples.jsonl")
    path.write_text("".join(json.dumps(row) + "\n" for row in samples))
    return run


def write_results(results: Path) -> Path:
    """Two settings that differ in staleness, two variants, three seeds; drpo is 0.1 above pg_is at every seed."""
    for setting, staleness in (("A", 0), ("B", 2)):
        for seed in range(3):
            write_run(results, setting, "pg_is", seed, 0.5 + 0.05 * seed, staleness=staleness)
            write_run(results, setting, "drpo_0.15", seed, 0.6 + 0.05 * seed + 0.001 * seed, staleness=staleness)
    return results
