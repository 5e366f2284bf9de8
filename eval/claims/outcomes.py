"""What a run is scored by. Rewards are dated by the version of the weights that sampled them, not by the step.

Step s samples the weights of s - 1 - staleness updates (`weights/sampled_version`; 0 is the start), so the steps of two
runs of different staleness do not score the same weights. All steps of one version are averaged.

* reward (primary): mean over versions 1 to the last that was sampled. Where the stale rollouts are not run out the last
  updates are scored by nothing: `Record.coverage` says how many are, and runs of other versions are not compared.
* late_score: mean avg@k of the last three checkpoints; drawdown: largest fall of s from an earlier maximum.
* collapse, dip, collapse_time: see `falls`. s_v is the mean reward of the WINDOW versions up to v.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from eval.files import InputError, read_csv
from eval.runs import RunKey
from eval.tables import REWARD, TIDY

SAMPLED, SYNCED, SCORE = "weights/sampled_version", "weights/synced_version", "avg@"
WINDOW, LASTING, CHECKPOINTS = 5, 10, 3
FALLEN, RECOVERED = 1 / 2, 0.8
OUTCOMES = ("reward", "late_score", "drawdown", "collapse", "dip", "collapse_time", "metric")


class NotTestable(ValueError):
    """Why a claim gets no word; the message is the reason that the table shows."""


@dataclass(frozen=True)
class Record:
    """A run: mean reward of each version, avg@k of each checkpoint, mean of each metric over steps from 1.

    synced: the last version that was handed to the rollouts, sampled or not.
    """

    rewards: Mapping[int, float]
    scores: Mapping[int, float] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    synced: int = 0

    @property
    def coverage(self) -> str:
        """Which versions of the weights the reward scores."""
        later = [version for version in self.rewards if version > 0]
        span = f"versions {min(later)} to {max(later)}" if later else "no version after the start"
        return f"{span} scored, {self.synced} synced"


@dataclass(frozen=True)
class Falls:
    """collapse: the version at which the run collapsed, None if it did not; dip: it fell and recovered."""

    collapse: int | None
    dip: bool
    last: int

    @property
    def time(self) -> int:
        """Versions until the collapse, restricted to the last version scored: a run that holds has that one."""
        return self.last if self.collapse is None else self.collapse


def read_records(results: Path) -> dict[RunKey, Record]:
    """{run: record} from tables/curves.csv below a tier's results; {} where the tier trains nothing.

    Raises InputError for a table without the columns of `eval.tables` or with a cell that is no number.
    """
    path = results / "tables" / "curves.csv"
    if not path.is_file():
        return {}
    runs: dict[RunKey, dict[int, dict[str, float]]] = {}
    for line, row in enumerate(read_csv(path, "curves", TIDY), start=2):
        try:
            key, step = RunKey(row["setting"], row["variant"], int(row["seed"])), int(row["step"])
            runs.setdefault(key, {}).setdefault(step, {})[row["metric"]] = float(row["value"])
        except ValueError as error:
            raise InputError(f"{path} line {line}: seed, step and value must be numbers ({error})") from error
    return {key: record(steps) for key, steps in sorted(runs.items())}


def record(steps: Mapping[int, Mapping[str, float]]) -> Record:
    """From {step: {metric: value}}. A run without sampled versions has no rewards, and so no outcome of them."""
    by_version: dict[int, list[float]] = {}
    values: dict[str, list[float]] = {}
    scores = {}
    for step, data in sorted(steps.items()):
        if SAMPLED in data and REWARD in data:
            by_version.setdefault(int(data[SAMPLED]), []).append(data[REWARD])
        for name, value in data.items():
            if step >= 1:
                values.setdefault(name, []).append(value)
                if name.startswith(SCORE):
                    scores[step] = value
    rewards = {version: _mean(found) for version, found in sorted(by_version.items())}
    synced = int(max(values.get(SYNCED, [0.0])))
    return Record(rewards, scores, {name: _mean(found) for name, found in values.items()}, synced)


def same_versions(records: Iterable[Record]) -> None:
    """Raises NotTestable unless all runs score the same versions: other weights, another outcome."""
    spans = {frozenset(record.rewards) - {0}: record.coverage for record in records}
    if len(spans) > 1:
        raise NotTestable(f"the runs score different weights: {'; '.join(sorted(spans.values()))}")


def smoothed(rewards: Mapping[int, float]) -> dict[int, float]:
    """{version: mean reward of the WINDOW versions up to it}; from the WINDOW-th version on."""
    versions = sorted(rewards)
    return {
        versions[end - 1]: _mean(rewards[version] for version in versions[end - WINDOW : end])
        for end in range(WINDOW, len(versions) + 1)
    }


def falls(record: Record) -> Falls:
    """Collapse and dip. The start is the mean reward of version 0, which the first staleness + 1 steps sample.

    The run has fallen while s <= start / 2. Collapse: for LASTING versions in a row, or to the end; it is dated by the
    first of them. Dip: for fewer, and s comes back to 0.8 of the start. Neither: it came back to less than that, and
    then did not fall again. Raises NotTestable without version 0, with too few versions, or a start of 0.
    """
    s = smoothed(record.rewards)
    start = record.rewards.get(0, math.nan)
    if not s or not start > 0:
        raise NotTestable(f"no collapse is defined: start {start:.3g}, {len(record.rewards)} versions scored")
    versions, dip, stretch = list(s), False, list[int]()
    for version in versions:
        if s[version] <= FALLEN * start:
            stretch.append(version)
            if len(stretch) == LASTING or version == versions[-1]:
                return Falls(stretch[0], dip, versions[-1])
        elif stretch:
            dip = dip or any(s[later] >= RECOVERED * start for later in versions if later >= version)
            stretch = []
    return Falls(None, dip, versions[-1])


def outcome(record: Record, name: str, metric: str = "") -> float:
    """One of OUTCOMES of a run; `metric` is the recorded one that "metric" averages. Raises NotTestable."""
    if name == "metric":
        if metric not in record.metrics:
            raise NotTestable(f"{metric} is not recorded")
        return _finite(record.metrics[metric], metric)
    if name == "late_score":
        late = [record.scores[step] for step in sorted(record.scores)[-CHECKPOINTS:]]
        if len(late) < CHECKPOINTS:
            raise NotTestable(f"{len(late)} scored checkpoints after the start, {CHECKPOINTS} are needed")
        return _finite(_mean(late), name)
    later = [reward for version, reward in record.rewards.items() if version > 0]
    if not later:
        raise NotTestable("no version of the weights after the start is scored")
    if name == "reward":
        return _finite(_mean(later), name)
    if name == "drawdown":
        highest, fall = -math.inf, 0.0
        for value in smoothed(record.rewards).values():
            highest = max(highest, value)
            fall = max(fall, highest - value)
        return fall
    found = falls(record)
    return float({"collapse": found.collapse is not None, "dip": found.dip, "collapse_time": found.time}[name])


def _finite(value: float, name: str) -> float:
    if not math.isfinite(value):
        raise NotTestable(f"{name} of a run is {value}")
    return value


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return math.fsum(found) / len(found)
