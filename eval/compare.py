"""Two runs, or two groups of seeds, against each other: what differs in configuration, and in outcome.

    python -m eval compare RUN RUN [--metric reward/mean]

RUN is a run (.../seed~0), a variant (.../variant~drpo) or a setting (.../setting~B) below results/TIER/runs. Seeds that
both sides have are paired; with 1 or 2 of them their values stand in place of an interval (`eval.statistics`). Two
single runs are also paired by the problems that both were scored on: that interval is over problems, of these two
trainings, and says nothing about another seed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from eval.files import InputError, read_json, read_jsonl
from eval.results import ACCURACY, REWARD, scores_of
from eval.runs import RunKey, key_of, read_metrics, run_mean
from eval.statistics import Interval, paired_difference

# They say which run it is, or follow from it.
NAMES = ("seed", "variant", "setting_name", "output", "work")
Group = dict[int, Path]


@dataclass(frozen=True)
class Side:
    """One argument: {variant: {seed: run folder}}; a single run has one of each."""

    path: Path
    groups: dict[str, Group]

    @property
    def runs(self) -> list[Path]:
        return [run for group in self.groups.values() for run in group.values()]


def read_side(path: Path) -> Side:
    """The runs that an argument names. Raises InputError for a path that is none of the three kinds."""
    place = Path(path.resolve())
    pattern = {"seed": "", "variant": "seed~*/", "setting": "variant~*/seed~*/"}.get(place.name.split("~")[0])
    if pattern is None or "~" not in place.name:
        raise InputError(
            f"RUN = {path}: allowed is a run (.../seed~0), a variant (.../variant~NAME) or a setting (.../setting~NAME)"
        )
    groups: dict[str, Group] = {}
    for manifest in sorted(place.glob(f"{pattern}manifest.json")):
        key = key_of(manifest.parent)
        groups.setdefault(key.variant, {})[key.seed] = manifest.parent
    if not groups:
        raise InputError(f"RUN = {path}: no finished run there (a run's manifest.json is written when it is done)")
    return Side(path, groups)


def differences(a: Mapping[str, Any], b: Mapping[str, Any], prefix: str = "") -> dict[str, tuple[Any, Any]]:
    """{name: (value of a, value of b)} of what differs, nested names joined by dots; None for what a side lacks."""
    found: dict[str, tuple[Any, Any]] = {}
    for name in sorted(a.keys() | b.keys()):
        left, right = a.get(name), b.get(name)
        if isinstance(left, Mapping) and isinstance(right, Mapping):
            found |= differences(left, right, f"{prefix}{name}.")
        elif left != right:
            found[prefix + name] = (left, right)
    return found


def configuration_of(run: Path) -> dict[str, Any]:
    """What decides a run but its seed and names: its configuration, and the versions it ran with."""
    manifest = read_json(run / "manifest.json", "run manifest")
    given = manifest.get("run") or {"setting": manifest.get("setting", {})}
    return {name: value for name, value in given.items() if name not in NAMES} | {
        "versions": manifest.get("versions", {})
    }


def outcome(run: Path, metric: str) -> float:
    """One number of a run: a validation or a score at its last step, another metric's mean over the run.

    The mean leaves out the first `staleness` steps (`eval.runs.run_mean`). Raises InputError for a metric that the run
    has nowhere.
    """
    metrics = read_metrics(run)
    recorded = sorted({name for data in metrics.values() for name in data})
    if metric in recorded and metric.startswith("val/"):
        return [data[metric] for data in metrics.values() if metric in data][-1]
    if metric in recorded:
        staleness = read_json(run / "manifest.json", "run manifest").get("setting", {}).get("staleness", 0)
        return run_mean(metrics, metric, staleness, run)
    scores = scores_of(_results(run), key_of(run))
    last = scores[max(scores)] if scores else {}
    if metric not in last:
        raise InputError(f"--metric = {metric!r}: {run} has it not; it has {', '.join([*recorded, *sorted(last)])}")
    return last[metric]


def _results(run: Path) -> Path:
    return run.parents[3]


def _metrics_of_both(a: Side, b: Side) -> list[str]:
    """The outcomes shown where no metric is asked for: those that every run has."""
    names: set[str] | None = None
    for run in [*a.runs, *b.runs]:
        own = {name for data in read_metrics(run).values() for name in data}
        scores = scores_of(_results(run), key_of(run))
        own |= {name for name in (scores[max(scores)] if scores else {}) if name.startswith("avg@")}
        names = own if names is None else names & own
    known = names or set()
    return [name for name in (REWARD, ACCURACY, *sorted(n for n in known if n.startswith("avg@"))) if name in known]


def compare(first: Path, second: Path, metric: str | None) -> Iterator[str]:
    """The lines of the comparison; differences are the first argument minus the second. Raises InputError."""
    a, b = read_side(first), read_side(second)
    yield f"a = {a.path} ({len(a.runs)} {_runs(len(a.runs))})"
    yield f"b = {b.path} ({len(b.runs)} {_runs(len(b.runs))})"
    pairs = _pairs(a, b)
    yield from _configuration(pairs)
    for name in [metric] if metric else _metrics_of_both(a, b):
        for variant, (left, right) in pairs.items():
            lead = f"{name}, {variant}" if len(pairs) > 1 else name
            yield f"{lead}: {_outcomes(left, right, name)}"
    if len(a.runs) == len(b.runs) == 1:
        yield from _by_problem(a.runs[0], b.runs[0])


def _pairs(a: Side, b: Side) -> dict[str, tuple[Group, Group]]:
    if len(a.groups) == len(b.groups) == 1:
        (name, left), (other, right) = *a.groups.items(), *b.groups.items()
        return {name if name == other else f"{name} against {other}": (left, right)}
    common = [name for name in a.groups if name in b.groups]
    if not common:
        raise InputError(f"{a.path} and {b.path} have no variant in common: {sorted(a.groups)} and {sorted(b.groups)}")
    return {name: (a.groups[name], b.groups[name]) for name in common}


def _configuration(pairs: Mapping[str, tuple[Group, Group]]) -> Iterator[str]:
    """Of the first run of each pair; runs of one side that differ among themselves are said to."""
    found: dict[str, tuple[Any, Any]] = {}
    for left, right in pairs.values():
        sides = [[configuration_of(run) for run in group.values()] for group in (left, right)]
        found |= differences(sides[0][0], sides[1][0])
        for name, own in zip("ab", sides, strict=True):
            mixed = sorted({field for other in own[1:] for field in differences(own[0], other)})
            if mixed:
                yield f"warning: the runs of {name} differ among themselves in {', '.join(mixed)}"
    yield "configuration: no difference" if not found else "configuration:"
    width = max(map(len, found), default=0)
    for field, (before, after) in found.items():
        yield f"  {field:<{width}}  a: {before}  b: {after}"
    if "setting.staleness" in found:
        yield "note: run means of another staleness are over other steps (see eval.runs.run_mean)"


def _outcomes(left: Group, right: Group, metric: str) -> str:
    values = [{seed: outcome(run, metric) for seed, run in group.items()} for group in (left, right)]
    if any(not math.isfinite(value) for side in values for value in side.values()):
        return "not known: a run has no step after its first `staleness`"
    said = " against ".join(f"{np.mean(list(side.values())):.4g}" for side in values)
    if len(left) == len(right) == 1:
        difference = next(iter(values[0].values())) - next(iter(values[1].values()))
        each = "1 run each" if left.keys() == right.keys() else "1 run each, of other seeds"
        return f"{said}, difference {difference:+.4g}; {each}: not a test"
    paired = paired_difference(values[0], values[1], np.random.default_rng(0))
    if not paired.seeds:
        return f"{said}; no seed in common, so nothing is paired"
    return f"{said}, paired difference {interval_text(paired.difference)}, a larger in {paired.wins}"


def interval_text(found: Interval, unit: str = "seeds") -> str:
    """`+0.02 [0.01, 0.03], 95 % over 3 seeds`; for 1 or 2 the values."""
    note = f"; {found.note}" if found.note else ""
    if math.isnan(found.low):
        return f"{found.mean:+.4g} ({', '.join(f'{value:+.4g}' for value in found.values)}{note})"
    told = "" if found.low <= 0.0 <= found.high else ", told apart from 0"
    return (
        f"{found.mean:+.4g} [{found.low:+.4g}, {found.high:+.4g}], {found.level:.0%} over {found.n} {unit}{told}{note}"
    )


def _by_problem(a: Path, b: Path) -> Iterator[str]:
    sides = [_problems(run) for run in (a, b)]
    if not all(sides):
        return
    steps = [max(side) for side in sides]
    left, right = (side[step] for side, step in zip(sides, steps, strict=True))
    if not left.keys() & right.keys():
        yield "by problem: the two were scored on no problem in common"
        return
    paired = paired_difference(left, right, np.random.default_rng(0))
    at = f"step {steps[0]}" if steps[0] == steps[1] else f"steps {steps[0]} and {steps[1]}"
    yield f"by problem, mean of the samples at {at}: {interval_text(paired.difference, 'problems')}"
    yield "  over problems, of these two trainings alone: another seed may turn it around"


def _problems(run: Path) -> dict[int, dict[int, float]]:
    """{step: {problem: share of right samples}}; empty where a run has no samples."""
    key: RunKey = key_of(run)
    path = _results(run) / f"scores/setting~{key.setting}/variant~{key.variant}/seed~{key.seed}.samples.jsonl"
    found: dict[int, dict[int, float]] = {}
    if path.is_file():
        for row in read_jsonl(path, "score samples"):
            found.setdefault(row["step"], {})[row["problem"]] = sum(row["outcomes"]) / len(row["outcomes"])
    return found


def _runs(count: int) -> str:
    return "run" if count == 1 else "runs"
