"""How a tier's runs stand, on one screen: also while Snakemake runs, after a kill, and from another terminal."""

from __future__ import annotations

import statistics
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from workflows.config_checks.values import GridError
from workflows.console import in_words
from workflows.run_states import (
    DONE,
    FAILED,
    GRID,
    RUNNING,
    STATES,
    STOPPED,
    TOKENS,
    WAITING,
    RunState,
    found_places,
    grouped,
    look,
)

# Of runs in detail, and of groups: more would leave the screen.
MOST_LINES = 20


def status(tier: str | None, results: Path | None, tokens: bool = False) -> int:
    """Print it; 0. 2 after one line where there is no such tier or folder.

    A configuration that is refused now (its model was moved) does not hide the runs that there are.
    """
    section, places, note = TOKENS if tokens else GRID, None, ""
    if results is None:
        # Imported here: the grid needs torch, a folder does not.
        from workflows.read_grid import config_file, read_grid

        try:
            path = config_file(tier or "toy")
            results = Path("results", path.stem)
            grid = read_grid(tier or "toy")
            results, places = Path(grid.results), list(grid.token_runs() if tokens else grid.runs())
        except GridError as error:
            if results is None or not results.is_dir():
                print(f"error: {error}", file=sys.stderr)
                return 2
            note = f"the configuration is refused now ({error}): shown are the runs that have left files"
    elif not results.is_dir():
        print(
            f"error: --results = {results}: no such folder; allowed is a tier's folder, as results/toy", file=sys.stderr
        )
        return 2
    found = found_places(results, section)
    states = look(results, found if places is None else places, section)
    others = 0 if places is None else len(set(found) - set(places))
    for line in screen(results, states, note):
        print(line)
    if others:
        print(f"{others} runs in {results}/{section.runs} or {section.work} belong to no run of this grid")
    return 0


def screen(results: Path, states: Sequence[RunState], note: str = "") -> Iterator[str]:
    """The lines."""
    counts = Counter(state.state for state in states)
    said = ", ".join(f"{counts[name]} {name}" for name in STATES if counts[name] or name in (DONE, RUNNING, WAITING))
    yield f"[status] {results}: {len(states)} runs: {said}{_time_left(states)}"
    if note:
        yield note
    groups = list(grouped(states))
    width = max((len(f"{setting}  {variant}") for (setting, variant), _ in groups), default=0)
    for (setting, variant), runs in groups[:MOST_LINES]:
        own = Counter(run.state for run in runs)
        counted = ", ".join(f"{own[name]} {name}" for name in STATES if own[name])
        yield f"{f'{setting}  {variant}':<{width}}  {counted}{_means(runs)}"
    if len(groups) > MOST_LINES:
        yield f"... and {len(groups) - MOST_LINES} more of setting and variant"
    for name in (RUNNING, FAILED, STOPPED):
        chosen = [state for state in states if state.state == name]
        for state in chosen[:MOST_LINES]:
            yield f"{name}: {_line(state)}"
        if len(chosen) > MOST_LINES:
            yield f"... and {len(chosen) - MOST_LINES} more {name}"
    if counts[FAILED] or counts[STOPPED]:
        yield "The same command as before goes on: what is done is kept, a stopped training has its last restart point."


def _line(state: RunState) -> str:
    step = "no step yet" if state.step is None else f"step {state.step}{f' of {state.steps}' if state.steps else ''}"
    parts = [f"{state.setting} {state.variant} seed {state.seed}, {step}"]
    parts += [f"reward {state.reward:.3f}"] if state.reward is not None else []
    parts += [f"accuracy {state.accuracy:.3f}"] if state.accuracy is not None else []
    if state.state == RUNNING and state.left_seconds is not None:
        parts.append(f"{in_words(state.left_seconds)} left")
    return ", ".join(parts) + (f": {state.cause}" if state.cause else "") + f"  [{state.log}]"


def _means(runs: Sequence[RunState]) -> str:
    done = [run for run in runs if run.state == DONE]
    said = ""
    for name, values in (
        ("reward", [run.reward for run in done if run.reward is not None]),
        ("accuracy", [run.accuracy for run in done if run.accuracy is not None]),
    ):
        said += f", last {name} {statistics.fmean(values):.3f} (mean of {len(values)} done)" if values else ""
    return said


def _time_left(states: Sequence[RunState]) -> str:
    """Runs at work by their own steps, the others by done runs of their setting (else of all), as many at a time as
    now run. Empty where nothing is left, or no run has been timed."""
    seconds: dict[str, list[float]] = {}
    for state in states:
        if state.state == DONE and state.seconds is not None:
            seconds.setdefault(state.setting, []).append(state.seconds)
    everything = [value for values in seconds.values() for value in values]
    total, open_runs = 0.0, [state for state in states if state.state != DONE]
    for state in open_runs:
        measured = seconds.get(state.setting) or everything
        guess = state.left_seconds
        if guess is None and measured:
            guess = statistics.median(measured)
        if guess is None:
            return "; time left: not known before a first run of one setting is timed"
        total += guess
    if not open_runs:
        return ""
    at_work = sum(state.state == RUNNING for state in states)
    said = f"about {in_words(total / max(1, at_work))} of training"
    return f"; {said} left at {at_work} at a time" if at_work else f"; nothing runs now, {said} left one at a time"
