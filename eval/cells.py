"""What is stored per cell (one trained run) and how it is read: `panel~B/method~drpo_0.15/seed~0`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval.files import InputError, read_json, read_jsonl

_CELL = re.compile(r"panel~(?P<panel>[^/]+)/method~(?P<method>[^/]+)/seed~(?P<seed>\d+)")


@dataclass(frozen=True, order=True)
class Cell:
    """Named training settings, method label, seed."""

    panel: str
    method: str
    seed: int


def cell_of(path: Path) -> Cell:
    """The cell named by the last three parts of a run folder or of a scores file (`.json` is dropped)."""
    text = "/".join(path.parts[-3:]).removesuffix(".json")
    match = _CELL.fullmatch(text)
    if match is None:
        raise InputError(f"{path}: expected a path that ends in panel~NAME/method~LABEL/seed~NUMBER")
    return Cell(match["panel"], match["method"], int(match["seed"]))


def by_cell(paths: Iterable[Path], what: str) -> dict[Cell, Path]:
    """{cell: path}, by cell; two paths of one cell are an InputError."""
    found: dict[Cell, Path] = {}
    for path in paths:
        cell = cell_of(path)
        if cell in found:
            raise InputError(f"{what}: {found[cell]} and {path} are the same cell")
        found[cell] = path
    return dict(sorted(found.items()))


def read_scores(path: Path) -> dict[int, dict[str, dict[str, Any]]]:
    """{step: {metric: {value, stderr, n}}} of one scores file."""
    content = read_json(path, "scores")
    try:
        return {entry["step"]: entry["metrics"] for entry in content["checkpoints"]}
    except (KeyError, TypeError) as error:
        raise InputError(f"{path}: not a scores file of eval.score ({error!r})") from error


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


def read_lag(run: Path) -> int:
    """Weight syncs by which the rollout policy lags behind: manifest.json, key panel.lag."""
    path = run / "manifest.json"
    manifest = read_json(path, "run manifest")
    panel = manifest.get("panel") if isinstance(manifest, dict) else None
    lag = panel.get("lag") if isinstance(panel, dict) else None
    if not isinstance(lag, int) or isinstance(lag, bool) or lag < 0:
        raise InputError(f"{path}: panel.lag must be an integer >= 0, got {lag!r}")
    return lag


def run_mean(metrics: dict[int, dict[str, float]], metric: str, lag: int, run: Path) -> float:
    """Mean of a training metric over the steps after the first `lag`; nan where no step remains.

    Steps are numbered from 1. The first `lag` of them sample the starting policy whatever the method, so they only
    dilute differences between methods.
    """
    values = {step: data[metric] for step, data in metrics.items() if step >= 1 and metric in data}
    if not values:
        known = sorted({key for data in metrics.values() for key in data})
        raise InputError(f"{run / 'metrics.jsonl'}: no {metric!r} at any step; it has {known}")
    late = [value for step, value in values.items() if step > lag]
    return math.fsum(late) / len(late) if late else math.nan
