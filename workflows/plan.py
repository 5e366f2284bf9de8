"""What a tier costs before it is started, and which of its runs a machine takes when several share it."""

from __future__ import annotations

import hashlib
import os
import shlex
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from methods.backend.run_config import RunConfig
from workflows.grid import Grid, GridError
from workflows.read_grid import config_file, read_grid
from workflows.run_states import DONE, GRID, RunState, look

# Of the toy world's model on one thread, from results/reference/toy/timings/time.csv (59.5 s for 70 steps of 512
# responses) with 15 s of imports; used where no run has been timed.
START_SECONDS, SECONDS_PER_RESPONSE = 15.0, 44.5 / (70 * 512)
# float32 copies of a model that a run keeps: weights, gradient and two moments of the restart point.
RESTART_COPIES = 4


@dataclass(frozen=True)
class Shard:
    """Machine `index` (from 1) of `count`."""

    index: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """`2/3`. Raises GridError."""
        index, _, count = text.partition("/")
        if not (index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
            raise GridError(f"--shard = {text!r}: allowed is i/n with 1 <= i <= n, as 2/3")
        return cls(int(index), int(count))

    def takes(self, setting: str, variant: str, seed: int) -> bool:
        """Every run is one machine's. Decided by its name and n alone, so that what a grid gains or loses moves no
        other run; seeds in a row of one variant are dealt out in turn."""
        name = hashlib.sha256(f"{setting}/{variant}".encode()).digest()
        return (int.from_bytes(name[:8], "big") + seed) % self.count == self.index - 1


@dataclass(frozen=True)
class Cost:
    """Of one setting's runs. source: where the seconds come from; None where they are not known."""

    runs: int
    done: int
    seconds: float | None
    source: str
    megabytes: float | None
    disk_source: str


def plan(tier: str, shard: str | None, cores: int) -> int:
    """Print it; 0, or 2 after one line that says what is wrong."""
    try:
        chosen = Shard.parse(shard) if shard else Shard(1, 1)
        grid = read_grid(tier)
    except GridError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    keys = grid.keys()
    runs = {grid.path(*key): grid.runs()[grid.path(*key)] for key in keys if chosen.takes(*key)}
    all_states = look(Path(grid.results), grid.runs(), GRID)
    states = {state.place: state for state in all_states}
    which = f" on machine {chosen.index} of {chosen.count}" if shard else ""
    done = sum(states[place].state == DONE for place in runs)
    print(f"[plan] {grid.config['tier']}: {len(runs)} of {len(grid.runs())} runs{which}, {done} of them done")
    total, megabytes, unknown, unsized = 0.0, 0.0, [], []
    for setting in dict.fromkeys(run.setting_name for run in runs.values()):
        cost = cost_of(setting, runs, all_states, grid)
        todo = cost.runs - cost.done
        seconds = "not known" if cost.seconds is None else f"{todo * cost.seconds / 3600:.2f} core-hours"
        disk = (
            "disk not known" if cost.megabytes is None else f"{cost.runs * cost.megabytes:.0f} MB ({cost.disk_source})"
        )
        print(f"{setting}: {cost.runs} runs, {todo} to do, {seconds} ({cost.source}), {disk}")
        total += todo * (cost.seconds or 0.0)
        megabytes += cost.runs * (cost.megabytes or 0.0)
        unknown += [setting] if cost.seconds is None else []
        unsized += [setting] if cost.megabytes is None else []
    rest = f" without {', '.join(unknown)} (run one of it and plan again)" if unknown else ""
    room = f" without {', '.join(unsized)} (no model folder there yet)" if unsized else ""
    print(f"in all: {total / 3600:.2f} core-hours of training{rest}, {megabytes:.0f} MB{room}; scoring is not counted")
    if not runs:
        print("this machine has nothing to do: allowed are fewer machines")
        return 0
    targets = targets_of(grid, runs) if shard else []
    print(command(config_file(tier), targets, cores, Path(grid.results), which=chosen))
    return 0


def cost_of(setting: str, runs: dict[str, RunConfig], states: Sequence[RunState], grid: Grid) -> Cost:
    """Seconds and megabytes of a run: measured on done runs of the setting, else of one with the same model by the
    number of responses, else a guess that is said to be one."""
    own = {place: run for place, run in runs.items() if run.setting_name == setting}
    first = next(iter(own.values()))
    done = [state for state in states if state.state == DONE]
    seconds, source = _seconds(first, setting, done, grid)
    same = [state for state in done if state.setting == setting]
    megabytes: float | None
    if same:
        sizes = [_size(_folders(grid, state.place)) for state in same]
        megabytes, disk_source = statistics.median(sizes) / 2**20, f"measured on {len(same)} runs"
    else:
        copies = RESTART_COPIES + 1
        if first.setting.export_every:
            copies += first.setting.steps // first.setting.export_every - 1
        weights = sum(path.stat().st_size for path in Path(first.model).glob("*.safetensors"))
        megabytes = copies * weights / 2**20 if weights else None
        disk_source = f"a guess: {copies} copies of the model"
    count = sum(state.place in own for state in done)
    return Cost(len(own), count, seconds, source, megabytes, disk_source)


def _seconds(run: RunConfig, setting: str, done: Sequence[RunState], grid: Grid) -> tuple[float | None, str]:
    timed = [state for state in done if state.seconds is not None]
    same = [state.seconds for state in timed if state.setting == setting and state.steps == run.setting.steps]
    if same:
        return statistics.median(same), f"measured on {len(same)} runs"  # type: ignore[type-var]
    rates = []
    for state in timed:
        other = grid.runs().get(state.place)
        if other is not None and other.model == run.model:
            rates.append(float(state.seconds or 0.0) / _responses(other))
    if rates:
        return (
            statistics.median(rates) * _responses(run),
            f"a guess: {len(rates)} runs of its model, by responses",
        )
    if "world" in grid.config["settings"][setting]:
        return START_SECONDS + SECONDS_PER_RESPONSE * _responses(run), "a guess: the reference's time a response"
    return None, "no run of its model has been timed"


def _responses(run: RunConfig) -> int:
    return run.setting.steps * run.setting.prompts * run.setting.group


def _folders(grid: Grid, place: str) -> list[Path]:
    return [Path(grid.results, folder, place) for folder in ("runs", "work")]


def _size(folders: Iterable[Path]) -> int:
    """Bytes of all files, a hard link once."""
    found = {}
    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_file():
                entry = path.stat()
                found[entry.st_dev, entry.st_ino] = entry.st_size
    return sum(found.values())


def targets_of(grid: Grid, runs: dict[str, RunConfig]) -> list[str]:
    """Files that the Snakefile makes of these runs: scores, which need the training; its metrics where none scores."""
    return [
        f"{grid.results}/scores/{place}.json"
        if grid.source(run.setting_name).task
        else f"{grid.results}/runs/{place}/metrics.jsonl"
        for place, run in runs.items()
    ]


def command(config: Path, targets: Sequence[str], cores: int, results: Path, which: Shard) -> str:
    """The line that starts it. The targets of a shard go to a file: they are too many for a line."""
    options = f"--cores {cores} --configfile {shlex.quote(str(config))} --workflow-profile workflows/profiles/local"
    if not targets:
        return f"start it with: OMP_NUM_THREADS=1 snakemake {options}"
    path = results / f"shard_{which.index}_of_{which.count}.txt"
    os.makedirs(results, exist_ok=True)
    path.write_text("".join(f"{target}\n" for target in targets))
    # Before the options: --configfile takes all words behind it.
    return f"start it with: OMP_NUM_THREADS=1 snakemake $(cat {shlex.quote(str(path))}) {options}"
