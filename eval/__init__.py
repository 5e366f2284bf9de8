"""Scores, statistics, tables, figures and the report; from checkpoints and run logs to what a reader sees.

python -m eval.score            checkpoints -> scores.json, samples.jsonl (lm-eval)
python -m eval.tables           scores and run logs -> scores.csv, curves.csv, summary.csv
python -m eval.figures.curves   curves.csv -> curves.svg; disagreement, weights, finite_step, tail_rules: the theory
python -m eval.report           all of it -> one report.html
python -m eval compare RUN RUN  two runs, variants or settings: what differs in configuration and in outcome
python -m eval plot             any recorded metric by name -> a figure

`eval.load(folder)` and `eval.outcomes(folder)` give a tier's results as DataFrames (`eval.results`).
"""

from importlib import import_module
from typing import Any

__all__ = ["load", "outcomes"]


def __getattr__(name: str) -> Any:
    # On first use, and not by an import statement: every program of this room loads this file, and none of them (so no
    # job that Snakemake holds for made of them) depends on these tables.
    if name in __all__:
        return getattr(import_module(".results", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
