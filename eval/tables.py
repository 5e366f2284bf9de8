"""Tidy tables from scores and run logs.

    python -m eval.tables scores  --scores FILE... [--runs RUN_DIR...] --output tables/scores.csv
    python -m eval.tables curves  --runs RUN_DIR... [--scores FILE...] --output tables/curves.csv
    python -m eval.tables summary --runs RUN_DIR... --scores FILE... --output tables/summary.csv

scores and curves: one row per setting, variant, seed, step and metric, with value and n (the problems behind the
value; empty for training metrics); `sampling/temperature` and `sampling/top_p` are those of the scored samples,
`val/temperature` that of verl's validation. summary: one row per setting and method; its intervals are over seeds (see
`eval.statistics`), its differences paired by seed; with 1 or 2 seeds their values stand in place of an interval. The
final step is the last one scored; none is selected by score.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eval.alike import check_runs, check_scores
from eval.files import InputError, write_csv
from eval.runs import (
    RunKey,
    by_run,
    read_metrics,
    read_sampling,
    read_scores,
    read_staleness,
    read_temperature,
    run_mean,
)
from eval.statistics import METHODS, Interval, mean_interval, paired_difference

TIDY = ("setting", "variant", "seed", "step", "metric", "value", "n")
REFERENCE = "dppo_topk_kl"
REWARD = "reward/mean"
START = "start"  # no interval: runs that share a warm start share this score, so its spread over seeds says nothing
QUANTITIES = (START, "final", "gain", "run_reward")
COMPARED = ("final", "run_reward")
VALIDATION = "val/accuracy"
SAMPLING = ("temperature", "top_p")
ENDS = ("", "_low", "_high", "_values")  # of a quantity's columns


def _row(key: RunKey, step: int, metric: str, value: float, n: int | None) -> dict[str, Any]:
    return {
        "setting": key.setting,
        "variant": key.variant,
        "seed": key.seed,
        "step": step,
        "metric": metric,
        "value": float(value),
        "n": n,
    }


def score_rows(scores: Mapping[RunKey, Path]) -> list[dict[str, Any]]:
    """Tidy rows of all scores; the standard error of `m` (over problems) is the metric `m_stderr`."""
    rows = []
    for key, path in scores.items():
        for step, metrics in sorted(read_scores(path).items()):
            for name, entry in sorted(metrics.items()):
                rows.append(_row(key, step, name, entry["value"], entry["n"]))
                if entry["stderr"] is not None:
                    rows.append(_row(key, step, f"{name}_stderr", entry["stderr"], entry["n"]))
            rows += [_row(key, step, f"sampling/{name}", value, None) for name, value in read_sampling(path).items()]
    return rows


def curve_rows(runs: Mapping[RunKey, Path], scores: Mapping[RunKey, Path]) -> list[dict[str, Any]]:
    """Tidy rows of every training metric of every step, and of avg@k at the scored steps."""
    rows = []
    for key, run in runs.items():
        for step, data in read_metrics(run).items():
            rows += [_row(key, step, name, value, None) for name, value in sorted(data.items())]
            if VALIDATION in data and (temperature := read_temperature(run)) is not None:
                rows.append(_row(key, step, "val/temperature", temperature, None))
    shown = [row for row in score_rows(scores) if row["metric"].startswith(("avg@", "sampling/"))]
    rows += [row for row in shown if not row["metric"].endswith("_stderr")]
    return sorted(rows, key=lambda row: [row[key] for key in TIDY[:5]])


def check_scored(runs: Mapping[RunKey, Path], scores: Mapping[RunKey, Path]) -> None:
    """Refuse scores without a run, and a setting of which only some runs are scored (a setting without any is fine)."""
    scored = {key.setting for key in scores}
    for key in sorted(scores.keys() - runs.keys()):
        raise InputError(f"{scores[key]}: its run is not among the given ones")
    for key in sorted(runs.keys() - scores.keys()):
        if key.setting in scored:
            raise InputError(f"{runs[key]}: its scores are not among the given ones")


def _accuracy(path: Path, metric: str) -> dict[int, float]:
    values = {step: metrics[metric]["value"] for step, metrics in read_scores(path).items() if metric in metrics}
    if len(values) < 2 or len(values) < len(read_scores(path)):
        raise InputError(f"{path}: {metric!r} is needed at a first and a last step, found at {sorted(values)}")
    return values


def outcomes_of(
    runs: Mapping[RunKey, Path], scores: Mapping[RunKey, Path], metric: str
) -> dict[RunKey, dict[str, float]]:
    """{key: {start, final, gain, run_reward, step}}; within a setting all runs must be scored at the same steps.

    start, final and gain are nan for a setting without scores.
    """
    steps_of: dict[str, tuple[Path, tuple[int, int]]] = {}
    found: dict[RunKey, dict[str, float]] = {}
    for key, run in runs.items():
        metrics = read_metrics(run)
        values = {"start": math.nan, "final": math.nan, "step": float(max(metrics))}
        if key in scores:
            path, accuracy = scores[key], _accuracy(scores[key], metric)
            ends = (min(accuracy), max(accuracy))
            other, expected = steps_of.setdefault(key.setting, (path, ends))
            if ends != expected:
                raise InputError(f"{path} is scored from step {ends[0]} to {ends[1]}, {other} from {expected}")
            values = {"start": accuracy[ends[0]], "final": accuracy[ends[1]], "step": float(ends[1])}
        values["gain"] = values["final"] - values["start"]
        values["run_reward"] = run_mean(metrics, REWARD, read_staleness(run), run)
        found[key] = values
    return found


def _interval_columns(name: str, interval: Interval) -> dict[str, Any]:
    """Mean and limits; where the seeds are too few for these, their values."""
    values = "; ".join(format(value, ".6g") for value in interval.values)
    return {name: interval.mean, f"{name}_low": interval.low, f"{name}_high": interval.high, f"{name}_values": values}


def _finite(values: Mapping[int, float]) -> dict[int, float]:
    return {seed: value for seed, value in values.items() if not math.isnan(value)}


def summary_columns() -> list[str]:
    """Columns of the summary, in order."""
    columns = ["setting", "variant", "final_step", "n_seeds", "metric", *SAMPLING]
    for name in QUANTITIES:
        columns += [name] if name == START else [f"{name}{end}" for end in ENDS]
    columns += ["reference", "n_pairs"]
    for name in COMPARED:
        columns += [*(f"{name}_diff{end}" for end in ENDS), f"{name}_wins"]
    return [*columns, "interval", "note"]


def summary_rows(
    outcomes: Mapping[RunKey, Mapping[str, float]],
    sampling: Mapping[str, Mapping[str, float]],
    args: argparse.Namespace,
) -> list[dict[str, Any]]:
    """One row per setting and method; see `summary_columns`. Each interval draws from a generator of its own.

    sampling: by setting, temperature and top-p of its scores (which `eval.alike` holds to one set a setting).
    """
    groups: dict[tuple[str, str], dict[int, Mapping[str, float]]] = {}
    for key, values in sorted(outcomes.items()):
        groups.setdefault((key.setting, key.variant), {})[key.seed] = values
    options: dict[str, Any] = {"level": args.level, "method": args.interval, "resamples": args.resamples}

    def generator() -> np.random.Generator:
        # The same resamples for every run of the table: adding a method changes no other row.
        return np.random.default_rng(args.seed)

    rows = []
    for (setting, variant), seeds in groups.items():
        row: dict[str, Any] = {"setting": setting, "variant": variant, "n_seeds": len(seeds)}
        row["final_step"] = int(next(iter(seeds.values()))["step"])
        row |= {"metric": args.metric} | {name: sampling.get(setting, {}).get(name) for name in SAMPLING}
        reference = groups.get((setting, args.reference), {})
        notes = [] if reference else [f"no {args.reference} in this setting"]
        row |= {"reference": args.reference, "interval": f"{args.interval} {args.level:g}", "n_pairs": 0}
        for name in QUANTITIES:
            known = _finite({seed: of[name] for seed, of in seeds.items()})
            interval = mean_interval(list(known.values()), generator(), **options)
            row |= {name: interval.mean} if name == START else _interval_columns(name, interval)
            notes.append(interval.note if known else "")
            if len(known) < len(seeds):
                reason = "no step after those that sample from the start" if name == "run_reward" else "not scored"
                notes.append(reason)
        for name in COMPARED:
            own, theirs = (_finite({s: of[name] for s, of in group.items()}) for group in (seeds, reference))
            paired = paired_difference(own, theirs, generator(), **options)
            row |= _interval_columns(f"{name}_diff", paired.difference) | {f"{name}_wins": paired.wins}
            row["n_pairs"] = max(row["n_pairs"], len(paired.seeds))
            if own and theirs:
                notes.append(paired.difference.note)
        rows.append({**row, "note": "; ".join(dict.fromkeys(filter(None, notes)))})
    return rows


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line; see the module docstring."""
    parser = argparse.ArgumentParser(
        prog="python -m eval.tables",
        description=__doc__.splitlines()[0],
        # @FILE: arguments from a file, one a line; a grid of some hundred runs is longer than a shell's command may be.
        fromfile_prefix_chars="@",
    )
    commands = parser.add_subparsers(dest="table", required=True)
    for name, needed in (("scores", {"scores"}), ("curves", {"runs"}), ("summary", {"runs", "scores"})):
        command = commands.add_parser(name)
        command.add_argument("--runs", type=Path, nargs="*", default=[], required="runs" in needed)
        command.add_argument("--scores", type=Path, nargs="*", default=[], required="scores" in needed)
        command.add_argument("--output", type=Path, required=True)
    command.add_argument("--metric", default="avg@16", help="accuracy metric of the scores (default avg@16)")
    command.add_argument("--reference", default=REFERENCE, help=f"variant to compare with (default {REFERENCE})")
    command.add_argument("--interval", choices=METHODS, default=METHODS[0])
    command.add_argument("--level", type=float, default=0.95)
    command.add_argument("--resamples", type=int, default=10_000)
    command.add_argument("--seed", type=int, default=0, help="of the resampling")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write one table; 0, or 2 after one line that says what is wrong."""
    args = parse_arguments(arguments)
    try:
        if args.table == "summary" and not (0 < args.level < 1 and args.resamples > 0 and args.seed >= 0):
            raise InputError("--level must lie in (0, 1), --resamples be positive and --seed not negative")
        runs, scores = by_run(args.runs, "--runs"), by_run(args.scores, "--scores")
        if args.table != "scores" or runs:
            check_scored(runs, scores)
        check_runs(runs)
        check_scores(scores)
        if args.table == "summary":
            outcomes = outcomes_of(runs, scores, args.metric)
            sampling = {key.setting: read_sampling(path) for key, path in scores.items()}
            write_csv(args.output, summary_columns(), summary_rows(outcomes, sampling, args))
        else:
            rows = score_rows(scores) if args.table == "scores" else curve_rows(runs, scores)
            write_csv(args.output, TIDY, rows)
    except InputError as error:
        print(f"eval.tables: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
