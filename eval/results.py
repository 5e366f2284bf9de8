"""A tier's results as tables: `load` has a row for each run and step, `outcomes` one for each run.

    import eval
    frame = eval.load("results/toy")          # columns: AXES, step, and every recorded metric by its own name
    frame[frame["staleness"] == 16].groupby(["variant", "step"])["reward/mean"].mean()
    runs = eval.outcomes("results/toy")       # columns: AXES, final_step, reward, accuracy, and the last scores

Wide: metrics that a step lacks (scores at steps that nobody scored) are NaN. Settings are columns too, so that a
contrast over precision or staleness is a `groupby`. Published runs alone are read: one at work is in no table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval.files import InputError, read_json
from eval.runs import RunKey, by_run, read_metrics, read_scores, run_mean

if TYPE_CHECKING:
    import pandas as pd

REWARD, ACCURACY = "reward/mean", "val/accuracy"
# Of a run's setting; with the names before and behind them they are `AXES`.
SETTINGS = (
    "train_precision",
    "rollout_precision",
    "rollout_quantization",
    "rollout_engine",
    "staleness",
    "prompts",
    "group",
    "mini_batches",
    "steps",
    "top_k",
    "temperature",
)
# learning_rate is the setting's; the recorded metric `lr` is that of each step.
AXES = ("setting", "variant", "method", "seed", "size", "task", "learning_rate", *SETTINGS)


def runs_in(results: Path) -> dict[RunKey, Path]:
    """{run: folder} of the published runs below a tier's results, sorted. Raises InputError where there is none."""
    if not results.is_dir():
        raise InputError(f"results = {results}: no such folder; allowed is a tier's folder, as results/toy")
    found = by_run((path.parent for path in results.glob("runs/*/*/*/manifest.json")), "runs")
    if not found:
        raise InputError(f"results = {results}: no finished run below {results / 'runs'}")
    return found


def axes_of(key: RunKey, run: Path) -> dict[str, Any]:
    """A run's `AXES`, from its place and its manifest; None for what the manifest does not say."""
    manifest = read_json(run / "manifest.json", "run manifest")
    settings, config = manifest.get("setting", {}), manifest.get("run", {})
    size, task = _size_and_task(config)
    named = {"setting": key.setting, "variant": key.variant, "method": config.get("method", key.variant)}
    named |= {"seed": key.seed, "size": size, "task": task, "learning_rate": settings.get("lr")}
    return named | {name: settings.get(name) for name in SETTINGS}


def _size_and_task(config: dict[str, Any]) -> tuple[str | None, str | None]:
    """Names of the model and of the data: a toy's as the configuration has them (`s`, `sort_6_200`), else folders'."""
    if not config.get("model") or not config.get("train_files"):
        return None, None
    model, task = Path(config["model"]).name, Path(config["train_files"][0]).parent.name
    return re.sub(rf"-{re.escape(task)}-ws\d+$", "", model), task


def scores_of(results: Path, key: RunKey) -> dict[int, dict[str, float]]:
    """{step: {metric: value}} of a run's scores; empty where it has none."""
    path = results / f"scores/setting~{key.setting}/variant~{key.variant}/seed~{key.seed}.json"
    if not path.is_file():
        return {}
    return {
        step: {name: float(entry["value"]) for name, entry in metrics.items()}
        for step, metrics in sorted(read_scores(path).items())
    }


def rows(results: Path) -> Iterator[dict[str, Any]]:
    """`load` without pandas."""
    for key, run in runs_in(results).items():
        axes, metrics, scores = axes_of(key, run), read_metrics(run), scores_of(results, key)
        for step in sorted(metrics.keys() | scores.keys()):
            yield axes | {"step": step} | metrics.get(step, {}) | scores.get(step, {})


def outcome_rows(results: Path) -> Iterator[dict[str, Any]]:
    """`outcomes` without pandas."""
    for key, run in runs_in(results).items():
        axes, metrics, scores = axes_of(key, run), read_metrics(run), scores_of(results, key)
        accuracies = [data[ACCURACY] for data in metrics.values() if ACCURACY in data]
        final = {
            "final_step": max(metrics),
            "reward": run_mean(metrics, REWARD, axes["staleness"] or 0, run),
            "accuracy": accuracies[-1] if accuracies else None,
        }
        yield axes | final | (scores[max(scores)] if scores else {})


def load(results: str | Path) -> pd.DataFrame:
    """A row for each run and step, with the columns `AXES`, step, and each metric and score by its name.

    Raises InputError where the folder has no finished run.
    """
    return _frame(list(rows(Path(results))), (*AXES, "step"))


def outcomes(results: str | Path) -> pd.DataFrame:
    """A row for each run: `AXES`, final_step, reward (mean over the steps after the first `staleness`, as in
    summary.csv), accuracy (last validation), and the scores of the last scored step.

    Raises InputError where the folder has no finished run.
    """
    return _frame(list(outcome_rows(Path(results))), (*AXES, "final_step", "reward", "accuracy"))


def _frame(found: list[dict[str, Any]], first: tuple[str, ...]) -> pd.DataFrame:
    # Imported here: a program that only compares two runs starts without it.
    import pandas as pd

    others = sorted({name for row in found for name in row} - set(first))
    return pd.DataFrame(found, columns=[*first, *others])
