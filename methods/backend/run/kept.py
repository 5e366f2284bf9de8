"""A finished training, kept in its work directory: published again where the output is lost, or gone on from.

Whoever removes the output (a workflow that was killed holds it for incomplete) then asks for the same training gets
the same bytes in seconds. The exported checkpoints are hard links, so that they take no further space.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from methods.backend.rollout.selection import ROLLOUTS
from methods.backend.run import restart
from methods.backend.run_config import RunConfig
from methods.backend.setting import Setting
from methods.files import write_text

SEAL = "finished.json"
RESULTS = ("metrics.jsonl", "timing.jsonl", "tokens.parquet", "checkpoints", "trackers", ROLLOUTS)
# Settings that decide no published byte but those of the manifest, which is written anew.
FREE = {"setting.save_every"}
STEPS = "setting.steps"


def seal(work: Path, report: Mapping[str, Any]) -> None:
    """Record that the results in a work directory are complete: their checksums, and what the worker said it ran."""
    paths = [path for name in RESULTS for path in sorted((work / name).rglob("*")) or [work / name]]
    files = {str(path.relative_to(work)): restart.stamp(path) for path in paths if path.is_file()}
    write_text(work / SEAL, json.dumps({"report": report, "files": files}, indent=1, sort_keys=True))


def report_of(work: Path) -> dict[str, Any] | None:
    """The worker's report of a complete result; None where there is none, or where a file is not what was sealed."""
    if not (work / SEAL).exists():
        return None
    try:
        sealed = json.loads((work / SEAL).read_text())
        changed = [name for name, stamp in sealed["files"].items() if restart.stamp(work / name) != stamp]
    except (json.JSONDecodeError, FileNotFoundError) as error:
        changed = [str(error)]
    if changed:
        print(f"[train] the finished result in {work} is not what was sealed ({changed[0]}): trained anew", flush=True)
        return None
    return sealed["report"]


def changes(before: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> set[str]:
    """Names of what differs between two fingerprints: settings in full ("setting.lr"), the rest by its kind."""
    found: set[str] = set()
    for name in {*before, *now}:
        old, new = before.get(name), now.get(name)
        if old == new:
            continue
        if prefix + name in ("settings", "settings.setting") and isinstance(old, Mapping) and isinstance(new, Mapping):
            found |= changes(old, new, f"{prefix}{name}.")
        else:
            found.add((prefix + name).removeprefix("settings."))
    return found


def goes_on(run: RunConfig) -> bool:
    """Whether a run of this run with more steps is one with fewer, gone on with: nothing in it knows their number.

    A schedule may, which `overrides` can set; records of tokens are joined at the end of a run.
    """
    return not run.overrides and run.setting.tokens is None


def lengthen(run: RunConfig, steps_before: int) -> bool:
    """Make the work of a run of other steps that of `run`; False where it has gone too far for that.

    What only the last step of the shorter run had (its validation, its export) is removed. A second call changes
    nothing.
    """
    work, setting = run.work_dir, run.setting
    if not goes_on(run) or restart.newest(work / "verl") >= setting.steps:
        return False
    (work / SEAL).unlink(missing_ok=True)
    if not _due(setting, setting.export_every, steps_before):
        shutil.rmtree(work / "checkpoints" / f"step_{steps_before}", ignore_errors=True)
    log = work / "metrics.jsonl"
    if log.exists() and not _due(setting, setting.validate_every, steps_before):
        lines = [_without_validation(line, steps_before) for line in log.read_text().splitlines()]
        write_text(log, "".join(line + "\n" for line in lines))
    return True


def _due(setting: Setting, every: int, step: int) -> bool:
    return step == setting.steps or bool(every and step % every == 0)


def _without_validation(line: str, step: int) -> str:
    try:
        row = json.loads(line)
    except json.JSONDecodeError:
        return line  # cut by a kill; the run's log drops it
    if row["step"] != step:
        return line
    row["data"] = {name: value for name, value in row["data"].items() if not name.startswith("val/")}
    return json.dumps(row)


def tidy(run: RunConfig) -> None:
    """Remove from a published run's work directory what neither publishes it again nor goes on from it."""
    wanted = {*RESULTS, SEAL, "run.json", *(["verl"] if goes_on(run) else [])}
    for path in run.work_dir.iterdir():
        if path.name not in wanted:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
