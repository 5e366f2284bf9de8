"""Reward and accuracy against the training step: a line per method, a band over seeds.

    python -m eval.figures.curves --curves curves.csv --variants variants.json --output curves.svg

A row of axes per setting (training settings), in the order of `--settings`. Lines are means over seeds, bands the range
over seeds (lowest to highest). The left metric is smoothed by a centred moving mean, said on the axis; accuracy is not.
Three accuracies are on three scales, so the axes say which they show: the rollout reward (training prompts, the rollout
policy's samples), verl's validation (test prompts, the training's temperature) and lm-eval's avg@k (its own).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from eval.figures.style import Look, new_figure, read_variants, save, spread
from eval.files import InputError, in_order, read_csv
from eval.tables import REWARD, TIDY, VALIDATION
from methods.provenance import MARKS

Series = dict[str, dict[str, tuple[NDArray[Any], NDArray[Any]]]]


def read_series(rows: Sequence[Mapping[str, str]], metric: str) -> Series:
    """{setting: {method: (steps [T], values [seeds, T])}} at the steps that all seeds of a method have."""
    by_variant: dict[tuple[str, str], dict[int, dict[int, float]]] = {}
    for row in rows:
        if row["metric"] == metric:
            seeds = by_variant.setdefault((row["setting"], row["variant"]), {})
            seeds.setdefault(int(row["seed"]), {})[int(row["step"])] = float(row["value"])
    series: Series = {}
    for (setting, variant), seeds in by_variant.items():
        steps = sorted(set.intersection(*(set(values) for values in seeds.values())))
        if not steps:
            raise InputError(f"setting {setting}, {variant}: the seeds {sorted(seeds)} share no step of {metric!r}")
        table = np.array([[values[step] for step in steps] for _, values in sorted(seeds.items())])
        series.setdefault(setting, {})[variant] = (np.array(steps), table)
    return series


def moving_mean(values: NDArray[Any], window: int) -> NDArray[Any]:
    """Centred moving mean along the last axis [seeds, T]; at the ends over what there is."""
    half, length = window // 2, values.shape[-1]
    edges = [(max(0, t - half), min(length, t + half + 1)) for t in range(length)]
    return np.stack([values[..., start:stop].mean(axis=-1) for start, stop in edges], axis=-1)


def choose_accuracy(rows: Sequence[Mapping[str, str]]) -> str:
    """The accuracy that most lines have, then the one with the most steps: lm-eval's avg@k, or the validation's."""
    lines: dict[str, set[tuple[str, str]]] = {}
    steps: dict[str, set[str]] = {}
    for row in rows:
        if row["metric"] == VALIDATION or row["metric"].startswith("avg@"):
            lines.setdefault(row["metric"], set()).add((row["setting"], row["variant"]))
            steps.setdefault(row["metric"], set()).add(row["step"])
    if not steps:
        raise InputError(f"the curves hold neither {VALIDATION!r} nor an avg@k")
    return max(sorted(steps), key=lambda metric: (len(lines[metric]), len(steps[metric])))


def draw_lines(axes: Any, lines: Mapping[str, Any], variants: Mapping[str, Look], window: int) -> dict[str, float]:
    """Draw a setting's lines and bands in the order of `labels`; returns {method: height of the line's end}."""
    ends = {}
    for variant, look in variants.items():
        if variant not in lines:
            continue
        steps, values = lines[variant]
        values = moving_mean(values, window)
        mean = values.mean(axis=0)
        axes.fill_between(steps, values.min(axis=0), values.max(axis=0), color=look.colour, alpha=0.11, linewidth=0)
        few = len(steps) < 12
        axes.plot(
            steps,
            mean,
            color=look.colour,
            linestyle=look.dashes,
            linewidth=1.9,
            marker=look.marker or ("o" if few else None),
            markevery=1 if few else len(steps) // 8,
            markersize=5 if look.marker else 3.5,
        )
        ends[variant] = float(mean[-1])
    axes.margins(x=0.01)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    axes.set_xlabel("training step")
    return ends


def label_ends(axes: Any, ends: Mapping[str, float], variants: Mapping[str, Look]) -> None:
    """Write each method's name right of its line's end, moved apart where they would overlap."""
    low, high = axes.get_ylim()
    names = list(ends)
    heights = spread([(ends[name] - low) / (high - low) for name in names], 0.066, 0.0, 1.0)
    for name, height in zip(names, heights, strict=True):
        look = variants[name]
        axes.annotate(
            f"{look.title} [{look.mark}]" if look.mark else look.title,
            xy=(1.0, (ends[name] - low) / (high - low)),
            xytext=(1.1, height),
            xycoords="axes fraction",
            va="center",
            parse_math=False,
            arrowprops={
                "arrowstyle": "-",
                "relpos": (0.0, 0.5),
                "color": look.colour,
                "linestyle": look.dashes,
                "linewidth": 0.9,  # thinner than a line, or it would look like its continuation
                "shrinkA": 3,
                "shrinkB": 0,
            },
        )


def temperature_note(rows: Sequence[Mapping[str, str]], metric: str, setting: str) -> str:
    """`, temperature 1`: at which a setting's accuracy was sampled; empty where the table does not say."""
    name = "val/temperature" if metric == VALIDATION else "sampling/temperature"
    found = {float(row["value"]) for row in rows if row["metric"] == name and row["setting"] == setting}
    return f", temperature {' and '.join(f'{value:g}' for value in sorted(found))}" if found else ""


def seed_note(counts: set[int]) -> str:
    """What lines and bands are, for runs of `counts` seeds."""
    if counts == {1}:
        return "One seed per method, so no band."
    span = str(min(counts)) if len(counts) == 1 else f"{min(counts)} to {max(counts)}"
    return f"Line: mean over {span} seeds. Band: lowest to highest seed."


def draw(args: argparse.Namespace) -> None:
    """Read, draw and save."""
    if args.smooth < 1 or args.smooth % 2 == 0:
        raise InputError(f"--smooth must be an odd number of steps, got {args.smooth}")
    rows = read_csv(args.curves, "--curves", TIDY)
    accuracy = args.accuracy or choose_accuracy(rows)
    reward_of, accuracy_of = read_series(rows, args.reward), read_series(rows, accuracy)
    for name, series in ((args.reward, reward_of), (accuracy, accuracy_of)):
        if not series:
            raise InputError(f"{args.curves}: no {name!r}; it has {sorted({row['metric'] for row in rows})}")
    variants = read_variants(args.variants, {row["variant"] for row in rows})
    settings = in_order(reward_of, args.settings)
    if {p: set(lines) for p, lines in reward_of.items()} != {p: set(lines) for p, lines in accuracy_of.items()}:
        raise InputError(f"{args.curves}: {args.reward!r} and {accuracy!r} are not there for the same methods")
    counts = {len(values) for lines in accuracy_of.values() for _, values in lines.values()}
    scale = "Accuracy: verl's validation" if accuracy == VALIDATION else "Accuracy: lm-eval, the scored checkpoints"
    note = f"{seed_note(counts)} {scale}; the rollout reward is another scale (training prompts, an older policy).\n"
    note += f"Formula: {', '.join(f'[{mark}] {text}' for mark, text in MARKS.items())}."
    figure, grid = new_figure(len(settings), 2, (11.4, 0.5 + 3.9 * len(settings)), note)
    smoothed = f", moving mean of {args.smooth} steps" if args.smooth > 1 else ""
    source = "validation samples" if accuracy == VALIDATION else f"lm-eval {accuracy}"
    left_title, left_unit = ("Rollout reward", "mean reward") if args.reward == REWARD else (args.reward, args.reward)
    for setting, (left, right) in zip(settings, grid, strict=True):
        draw_lines(left, reward_of[setting], variants, args.smooth)
        label_ends(right, draw_lines(right, accuracy_of[setting], variants, 1), variants)
        prefix = f"{setting}: " if len(settings) > 1 else ""
        left.set_title(f"{prefix}{left_title}", parse_math=False)
        right.set_title(f"{prefix}Accuracy of the current weights", parse_math=False)
        left.set_ylabel(f"{left_unit}{smoothed}", parse_math=False)
        right.set_ylabel(f"accuracy ({source}{temperature_note(rows, accuracy, setting)})", parse_math=False)
    texts = {"Title": f"{left_title} and accuracy against training step", "Description": note.replace("\n", " ")}
    save(figure, args.output, texts)


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line; see the module docstring."""
    parser = argparse.ArgumentParser(prog="python -m eval.figures.curves", description=__doc__.splitlines()[0])
    parser.add_argument("--curves", type=Path, required=True, help="curves.csv of eval.tables")
    parser.add_argument("--variants", type=Path, required=True, help="variants.json")
    parser.add_argument("--output", type=Path, required=True, help="curves.svg")
    parser.add_argument("--reward", default=REWARD, help=f"metric of the left axes (default {REWARD})")
    parser.add_argument("--settings", nargs="+", help="their order, that of the configuration (default by name)")
    parser.add_argument("--accuracy", help="metric of the right axes (default: the accuracy with the most steps)")
    parser.add_argument("--smooth", type=int, default=5, help="steps of the reward's moving mean, odd; 1 for none")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw; 0, or 2 after one line that says what is wrong."""
    try:
        draw(parse_arguments(arguments))
    except InputError as error:
        print(f"eval.figures.curves: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
