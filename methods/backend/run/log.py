"""A run's own record: metrics that depend on nothing but the configuration, and timings in a file apart."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from methods.files import write_text

# verl's names of what we keep, and ours.
RENAMED = {
    "critic/score/mean": "reward/mean",
    "response_length/mean": "response_length/mean",
    "actor/grad_norm": "grad_norm",
    "actor/lr": "lr",
    "actor/pg_loss": "loss",
    "actor/kl_loss": "kl/reference",
    "training/off_policy/trajectory_staleness/mean": "staleness/mean",
}
# Namespaces of our own metrics, which verl prefixes with "actor/".
OURS = (
    "tokens/",
    "mask/",
    "weights/",
    "ratio/",
    "gap/",
    "entropy/mean",
    "kl/",
    "divergence/",
    "direction/",
    "routing/",
    "support/",
    "updates/",
)


def canonical(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Our deterministic metrics out of verl's dictionary, sorted by name.

    `val/accuracy` is that of the validation set; of several (values of data_source) each has `val/accuracy/<source>`,
    and `val/accuracy` is their mean, in which every set counts the same whatever its size.
    """
    out: dict[str, float] = {}
    accuracies: dict[str, float] = {}
    for name, value in metrics.items():
        bare = name.removeprefix("actor/")
        if name in RENAMED:
            out[RENAMED[name]] = float(value)
        elif name.startswith("val-core/") and "/mean@" in name and ("/acc/" in name or "/reward/" in name):
            accuracies[name.removeprefix("val-core/").rsplit("/", 2)[0]] = float(value)
        elif bare.startswith(OURS):
            out[bare] = float(value)
    if accuracies:
        out["val/accuracy"] = math.fsum(accuracies.values()) / len(accuracies)
    if len(accuracies) > 1:
        out |= {f"val/accuracy/{source}": value for source, value in accuracies.items()}
    return dict(sorted(out.items()))


class DivergedError(FloatingPointError):
    """A training has left the finite numbers; the message names what, and the step."""


class RunLog:
    """metrics.jsonl (one row per step, appended and flushed) and timing.jsonl of one run directory.

    A resumed run keeps the rows up to the step it resumes from and drops later ones, so a row is never doubled.
    """

    def __init__(self, folder: Path, resumed_step: int, report: Callable[[int, dict[str, float]], None]) -> None:
        self.first_step = resumed_step
        self.report = report
        self.metrics_path, self.timing_path = folder / "metrics.jsonl", folder / "timing.jsonl"
        for path in (self.metrics_path, self.timing_path):
            _keep_until(path, resumed_step)
        self._has_first_row = bool(self.metrics_path.exists() and self.metrics_path.read_text())
        self._clock = time.perf_counter()

    def write(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Append one step. Raises DivergedError where a metric is not a finite number."""
        if step == self.first_step and self._has_first_row:
            return
        data = canonical(metrics)
        for name, value in data.items():
            if not math.isfinite(value):
                raise DivergedError(f"metric {name} = {value} at step {step}: the training has diverged")
        _append(self.metrics_path, {"step": step, "data": data})
        now = time.perf_counter()
        timings = {k: float(v) for k, v in metrics.items() if k.startswith(("timing_s/", "perf/"))}
        _append(self.timing_path, {"step": step, "data": {"wall_s": now - self._clock, **timings}})
        self._clock = now
        self.report(step, data)


def _append(path: Path, row: Mapping[str, Any]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")
        file.flush()
        os.fsync(file.fileno())


def rows_until(path: Path, step: int) -> list[str]:
    """Lines of a record that a run going on after `step` keeps: each step once, none where it starts at 0."""
    kept: list[str] = []
    for line in path.read_text().splitlines() if step and path.exists() else []:
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue  # a kill may leave half a line at the end
        if row["step"] <= step and (not kept or row["step"] > json.loads(kept[-1])["step"]):
            kept.append(line)
    return kept


def _keep_until(path: Path, step: int) -> None:
    if not path.exists():
        return
    kept = rows_until(path, step)
    write_text(path, "".join(line + "\n" for line in kept))
