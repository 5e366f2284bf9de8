"""What each run of a tier is doing, from its files alone: nothing is started, written or waited for.

A run is done once its folder below runs/ has a manifest (it appears by one rename). Before that it works below work/,
beside a file that the training process holds locked; a process that is gone holds nothing, however it ended.
"""

from __future__ import annotations

import fcntl
import json
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workflows.console import cause_in

DONE, RUNNING, FAILED, STOPPED, WAITING = STATES = ("done", "running", "failed", "stopped", "waiting")
REWARD, ACCURACY = "reward/mean", "val/accuracy"


@dataclass(frozen=True)
class Section:
    """Folders of one kind of run below a tier's results."""

    runs: str
    work: str
    rule: str


GRID, TOKENS = Section("runs", "work", "train"), Section("tokens", "work_tokens", "record")


@dataclass(frozen=True)
class RunState:
    """One run. step, steps: the last recorded and the last wanted, None where no file says it.

    step_seconds: median wall time of its steps. seconds: of a done run, of its whole job where a benchmark file has it,
    else of its steps. cause: why it failed.
    """

    place: str
    state: str
    log: Path
    step: int | None = None
    steps: int | None = None
    reward: float | None = None
    accuracy: float | None = None
    step_seconds: float | None = None
    seconds: float | None = None
    cause: str = ""
    settings: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def setting(self) -> str:
        return self.place.split("/")[0].removeprefix("setting~")

    @property
    def variant(self) -> str:
        return self.place.split("/")[1].removeprefix("variant~")

    @property
    def seed(self) -> str:
        return self.place.split("/")[2].removeprefix("seed~")

    @property
    def left_seconds(self) -> float | None:
        """Of a run at work: its remaining steps at their median time."""
        if self.step is None or self.steps is None or self.step_seconds is None:
            return None
        return max(0, self.steps - self.step) * self.step_seconds


def is_held(lock: Path) -> bool:
    """Whether a living process holds a lock file.

    Asked for a shared lock, which is given back at once: a holder is not disturbed, and nothing is written. A training
    that starts in that very moment waits half a second.
    """
    try:
        with lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Whole rows of a file that may be being written; a half line at the end is left out, a missing file is empty."""
    rows = []
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return []
    for line in lines:
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(row, dict) and isinstance(row.get("step"), int) and isinstance(row.get("data"), dict):
            rows.append(row)
    return rows


def found_places(results: Path, section: Section = GRID) -> list[str]:
    """Places of all runs that have left a file, sorted."""
    pattern = "setting~*/variant~*/seed~*"
    found = {
        "/".join(path.parts[-3:])
        for folder in (section.runs, section.work)
        for path in (results / folder).glob(pattern)
        if path.is_dir() and "." not in path.name
    }
    logs = (results / "logs" / section.rule).glob(f"{pattern}.log")
    found |= {"/".join(path.parts[-3:]).removesuffix(".log") for path in logs}
    return sorted(found)


def look(results: Path, places: Iterable[str], section: Section = GRID) -> list[RunState]:
    """The state of each place, in their order."""
    return [_look_at(results, place, section) for place in places]


def _look_at(results: Path, place: str, section: Section) -> RunState:
    published, work = results / section.runs / place, results / section.work / place
    log = results / "logs" / section.rule / f"{place}.log"
    done = (published / "manifest.json").is_file()
    folder = published if done else work
    rows, timing = read_rows(folder / "metrics.jsonl"), read_rows(folder / "timing.jsonl")
    settings = _json(published / "manifest.json").get("setting") if done else None
    if not done:
        settings = _json(work / "run.json").get("settings", {}).get("setting")
    settings = settings if isinstance(settings, dict) else {}
    state, cause = DONE if done else WAITING, ""
    if not done and is_held(work.with_name(work.name + ".lock")):
        state = RUNNING
    elif not done and (told := _failure(log)):
        state, cause = FAILED, told
    elif not done and (rows or (work / "run.json").is_file()):
        state = STOPPED
    walls = [float(row["data"]["wall_s"]) for row in timing if row["step"] > 0 and "wall_s" in row["data"]]
    return RunState(
        place=place,
        state=state,
        log=log,
        step=rows[-1]["step"] if rows else None,
        steps=settings.get("steps"),
        reward=_last(rows, REWARD),
        accuracy=_last(rows, ACCURACY),
        step_seconds=statistics.median(walls) if walls else None,
        seconds=_seconds(results / "timings" / section.rule / f"{place}.tsv", timing) if done else None,
        cause=cause,
        settings=settings,
    )


def _failure(log: Path) -> str:
    """Why a training ended by itself; empty where its log tells of no error, as after a kill."""
    cause = cause_in(log) or ""
    return cause if "error" in cause.lower() or "exception" in cause.lower() else ""


def _seconds(benchmark: Path, timing: Sequence[dict[str, Any]]) -> float | None:
    try:
        header, *rows = [line.split("\t") for line in benchmark.read_text().splitlines()]
        return float(dict(zip(header, rows[-1], strict=False))["s"])
    except (OSError, ValueError, KeyError, IndexError):
        walls = [float(row["data"].get("wall_s", 0.0)) for row in timing]
        return sum(walls) if walls else None


def _last(rows: Sequence[dict[str, Any]], metric: str) -> float | None:
    return next((row["data"][metric] for row in reversed(rows) if metric in row["data"]), None)


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text())
    except (OSError, json.JSONDecodeError):
        return {}
    return value if isinstance(value, dict) else {}


def grouped(states: Iterable[RunState]) -> Iterator[tuple[tuple[str, str], list[RunState]]]:
    """((setting, variant), its runs), in the order of their first run."""
    groups: dict[tuple[str, str], list[RunState]] = {}
    for state in states:
        groups.setdefault((state.setting, state.variant), []).append(state)
    yield from groups.items()
