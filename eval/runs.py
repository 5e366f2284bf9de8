"""What is stored per run and how it is read: `setting~B/variant~drpo_0.15/seed~0`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval.files import InputError, read_json, read_jsonl

_RUN = re.compile(r"setting~(?P<setting>[^/]+)/variant~(?P<variant>[^/]+)/seed~(?P<seed>\d+)")


@dataclass(frozen=True, order=True)
class RunKey:
    """Named training settings, variant, seed."""

    setting: str
    variant: str
    seed: int


def key_of(path: Path) -> RunKey:
    """The run named by the last three parts of a run folder or of a scores file (`.json` is dropped)."""
    text = "/".join(path.parts[-3:]).removesuffix(".json")
    match = _RUN.fullmatch(text)
    if match is None:
        raise InputError(f"{path}: expected a path that ends in setting~NAME/variant~VARIANT/seed~NUMBER")
    return RunKey(match["setting"], match["variant"], int(match["seed"]))


def by_run(paths: Iterable[Path], what: str) -> dict[RunKey, Path]:
    """{key: path}, by run; two paths of one run are an InputError."""
    found: dict[RunKey, Path] = {}
    for path in paths:
        key = key_of(path)
        if key in found:
            raise InputError(f"{what}: {found[key]} and {path} are the same run")
        found[key] = path
    return dict(sorted(found.items()))


def read_scores(path: Path) -> dict[int, dict[str, dict[str, Any]]]:
    """{step: {metric: {value, stderr, n}}} of one scores file."""
    content = read_json(path, "scores")
    try:
        return {entry["step"]: entry["metrics"] for entry in content["checkpoints"]}
    except (KeyError, TypeError) as error:
        raise InputError(f"{path}: not a scores file of eval.score ({error!r})") from error


def read_sampling(path: Path) -> dict[str, float]:
    """{temperature, top_p} of one scores file, as generate() got them; without those that it does not name."""
    content = read_json(path, "scores")
    sampling = content.get("sampling") if isinstance(content, dict) else None
    found = sampling if isinstance(sampling, dict) else {}
    return {
        name: _number(found[name], f"{path}, sampling.{name}") for name in ("temperature", "top_p") if name in found
    }


def read_metrics(run: Path) -> dict[int, dict[str, float]]:
    """{step: {metric: value}} of a run's metrics.jsonl; non-finite values are kept out of JSON, so none appear."""
    path = run / "metrics.jsonl"
    steps: dict[int, dict[str, float]] = {}
    for number, row in enumerate(read_jsonl(path, "run metrics"), start=1):
        step, data = (row.get("step"), row.get("data")) if isinstance(row, dict) else (None, None)
        if not isinstance(step, int) or not isinstance(data, dict):
            raise InputError(f'{path} line {number}: expected {{"step": integer, "data": {{key: number}}}}')
        if step in steps:
            raise InputError(f"{path} line {number}: step {step} appears twice")
        steps[step] = {key: _number(value, f"{path} line {number}, {key}") for key, value in data.items()}
    if not steps:
        raise InputError(f"{path}: no steps")
    return dict(sorted(steps.items()))


def _number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{where}: expected a number, got {value!r}")
    return float(value)


def read_temperature(run: Path) -> float | None:
    """Of a run's rollouts, at which verl validates too: manifest.json, key setting.temperature; None where it is
    absent."""
    path = run / "manifest.json"
    value = _setting(path).get("temperature")
    return None if value is None else _number(value, f"{path}, setting.temperature")


def _setting(path: Path) -> dict[str, Any]:
    manifest = read_json(path, "run manifest")
    setting = manifest.get("setting") if isinstance(manifest, dict) else None
    return setting if isinstance(setting, dict) else {}


def read_staleness(run: Path) -> int:
    """Age of the rollout policy in weight syncs: manifest.json, key setting.staleness."""
    path = run / "manifest.json"
    staleness = _setting(path).get("staleness")
    if not isinstance(staleness, int) or isinstance(staleness, bool) or staleness < 0:
        raise InputError(f"{path}: setting.staleness must be an integer >= 0, got {staleness!r}")
    return staleness


def run_mean(metrics: dict[int, dict[str, float]], metric: str, staleness: int, run: Path) -> float:
    """Mean of a training metric over the steps from staleness + 1 on; nan where there is no such step.

    Steps are numbered from 1, and step s samples with the weights after s - 1 - staleness updates, or with the start's
    where that is below 0. So steps 1 to staleness + 1 all sample with the start, whatever the method; counting them all
    would only dilute differences between methods, and the mean begins with the last of them. No step samples with the
    weights of the last `staleness` updates. Runs that differ in staleness therefore average over different weights:
    compare run means only between runs of one staleness.
    """
    values = {step: data[metric] for step, data in metrics.items() if step >= 1 and metric in data}
    if not values:
        known = sorted({key for data in metrics.values() for key in data})
        raise InputError(f"{run / 'metrics.jsonl'}: no {metric!r} at any step; it has {known}")
    late = [value for step, value in values.items() if step > staleness]
    return math.fsum(late) / len(late) if late else math.nan
