"""Files that one table joins must have been made alike; what may differ between them is the run alone.

A mean over seeds that were sampled with other settings is a mean of nothing, and no number shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from eval.files import InputError, read_json
from eval.runs import RunKey, read_scores, read_staleness

# Of a scores file: what all files of a table share; the rest (task, data, limits, precision) is the setting's.
EVERYWHERE = ("schema", "repeats", "seed", "batch_size", "prompt", "dtype", "device", "threads", "versions")
# Of a run's manifest: what all runs of a setting share, and beyond that those of one method's seeds.
OF_SETTING = ("model", "train_files", "val_files", "reward_function")
OF_METHOD = ("method", "options")
MISSING = object()


def check_scores(scores: Mapping[RunKey, Path]) -> None:
    """Refuse scores of other seeds, batch sizes, dtypes, tasks, data, sampling or versions beside each other.

    Raises InputError naming both files, the field and both values.
    """
    for path in scores.values():
        read_scores(path)  # a file of another layout is refused as such
    content = {key: (path, read_json(path, "scores")) for key, path in scores.items()}
    _compare(content, lambda key: "all", lambda found: {name: found.get(name) for name in EVERYWHERE})
    _compare(content, lambda key: key.setting, lambda found: {k: v for k, v in found.items() if k != "checkpoints"})


def check_runs(runs: Mapping[RunKey, Path]) -> None:
    """Refuse runs of one setting with other settings, model, data or versions, and a method's seeds with other options.

    Raises InputError as `check_scores` does.
    """
    for run in runs.values():
        read_staleness(run)
    manifests = {key: run / "manifest.json" for key, run in runs.items()}
    content = {key: (path, read_json(path, "run manifest")) for key, path in manifests.items()}

    def of_key(found: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
        key = found.get("run")
        return {f"run.{name}": key.get(name) if isinstance(key, dict) else None for name in names}

    _compare(content, lambda key: "all", lambda found: {"versions": found.get("versions")})
    _compare(
        content, lambda key: key.setting, lambda found: {"setting": found.get("setting"), **of_key(found, OF_SETTING)}
    )
    _compare(content, lambda key: f"{key.setting}/{key.variant}", lambda found: of_key(found, OF_METHOD))


def _compare(
    content: Mapping[RunKey, tuple[Path, Mapping[str, Any]]],
    group: Callable[[RunKey], str],
    part: Callable[[Mapping[str, Any]], Mapping[str, Any]],
) -> None:
    first: dict[str, tuple[Path, Mapping[str, Any]]] = {}
    for key, (path, found) in content.items():
        other, expected = first.setdefault(group(key), (path, part(found)))
        for name, one, two in _differences(expected, part(found), ""):
            raise InputError(f"{other} and {path} were made with another {name}: {_said(one)} and {_said(two)}")


def _differences(one: Any, two: Any, name: str) -> Iterator[tuple[str, Any, Any]]:
    """(dotted key, value, value) of every leaf that differs."""
    if isinstance(one, Mapping) and isinstance(two, Mapping):
        for key in sorted(one.keys() | two.keys()):
            yield from _differences(one.get(key, MISSING), two.get(key, MISSING), f"{name}.{key}".lstrip("."))
    elif one != two:
        yield name, one, two


def _said(value: Any) -> str:
    return "none" if value is MISSING else repr(value)
