"""Data and grading of the `sort` task; the rows are the ones that the training reads (verl's format)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow.parquet as parquet
from datasets import Dataset

from eval.files import InputError, require_file
from eval.tasks.repeats import count, repeated_results

__all__ = ["DATA_VARIABLE", "count", "load_docs", "process_results"]

DATA_VARIABLE = "TETHER_EVAL_DATA"
COLUMNS = ("prompt", "reward_model", "extra_info")


def load_docs(data: str | None = None, problems: int | None = None, **_: Any) -> dict[str, Dataset]:
    """{"test": rows {problem, question, answer}} of the first `problems` rows of a parquet file.

    `data` comes from lm-eval's metadata, else from the environment variable TETHER_EVAL_DATA.
    Raises InputError for a missing file or column, too few rows, a prompt that is not one user message, or
    problem indices that are not unique (scores are paired by them).
    """
    path = require_file(_path(data), "sort task, data")
    table = parquet.read_table(path)
    missing = [name for name in COLUMNS if name not in table.column_names]
    if missing:
        raise InputError(f"{path} lacks column(s) {missing}; it has {table.column_names}")
    rows = table.select(list(COLUMNS)).slice(0, problems).to_pylist()
    if not rows or (problems is not None and len(rows) < problems):
        raise InputError(f"{path} has {len(rows)} rows, {problems or 'at least 1'} problems were asked for")
    docs = [_doc(row, f"{path} row {number}") for number, row in enumerate(rows)]
    if len({doc["problem"] for doc in docs}) < len(docs):
        raise InputError(f"{path}: extra_info.index is not unique among the first {len(docs)} rows")
    return {"test": Dataset.from_list(docs)}


def _path(data: str | None) -> str:
    path = data or os.environ.get(DATA_VARIABLE)
    if not path:
        raise InputError(f"sort task: give the test parquet as metadata `data` or in ${DATA_VARIABLE}")
    return path


def _doc(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    messages = row["prompt"]
    if len(messages) != 1 or messages[0].get("role") != "user":
        raise InputError(f"{where}: prompt must be one user message, got {messages}")
    index, truth = (row["extra_info"] or {}).get("index"), (row["reward_model"] or {}).get("ground_truth")
    if not isinstance(index, int) or not isinstance(truth, str):
        raise InputError(f"{where}: extra_info.index (integer) and reward_model.ground_truth (text) are needed")
    return {"problem": index, "question": messages[0]["content"], "answer": _spaced(truth)}


def _spaced(text: str) -> str:
    """Words with single blanks between them: tokenizers differ in the blanks they decode to."""
    return " ".join(text.split())


def process_results(doc: Mapping[str, Any], results: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Grade the R responses of one problem; the training's reward is the same comparison."""
    answers = [_spaced(response) or None for response in results[0]]
    return repeated_results([int(answer == doc["answer"]) for answer in answers], answers)
