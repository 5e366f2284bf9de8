"""What the YAML files of a task folder say, read without lm-eval, whose import takes seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from eval.tasks import TASKS_DIR
from methods.config import did_you_mean


class _Loader(yaml.SafeLoader):
    """YAML with lm-eval's own tags, such as `!function utils.process_results`, whose values are left out."""


_Loader.add_multi_constructor("!", lambda loader, suffix, node: None)


def task_problem(name: str, include_path: str, repeats: int) -> str | None:
    """What keeps a task from being scored so often, as "field = value: what is allowed"; None where nothing does."""
    tasks = _tasks(Path(include_path))
    known = sorted({**tasks, **_tasks(TASKS_DIR)})
    if name not in known:
        listed = ", ".join(known)
        return f"task.name = {name!r}: no task of {include_path}; allowed are {listed}{did_you_mean(name, known)}"
    kwargs = tasks.get(name, {}).get("generation_kwargs")
    if repeats > 1 and isinstance(kwargs, dict) and kwargs.get("do_sample") is False:
        return (
            f"task.name = {name!r}: its generation_kwargs.do_sample is false, so all repeats would be equal; allowed "
            f"is scoring.repeats = 1, not {repeats}"
        )
    return None


def _tasks(folder: Path) -> dict[str, dict[str, Any]]:
    """{name: settings} of the tasks that a folder's YAML files define."""
    found = {}
    for path in sorted(folder.rglob("*.yaml")):
        settings = _with_included(path)
        # A list under `task` is a group of tasks.
        if isinstance(settings.get("task"), str):
            found[settings["task"]] = settings
        listed = settings.get("task_list")
        for entry in listed if isinstance(listed, list) else []:
            if isinstance(entry, dict) and isinstance(entry.get("task"), str):
                found[entry["task"]] = {**settings, **entry}
    return found


def _with_included(path: Path, above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """A file's settings over those of the file that its `include` names; {} where it is no YAML mapping."""
    try:
        own = yaml.load(path.read_text(), _Loader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return {}
    if not isinstance(own, dict):
        return {}
    other = path.parent / own["include"] if isinstance(own.get("include"), str) else None
    if other is None or path in above:
        return own
    return {**_with_included(other, (*above, path)), **own}
