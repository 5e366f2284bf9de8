"""Everything about a cell that can be wrong, found before the training starts."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from methods import registry
from methods.backend import rollout_settings
from methods.backend.recipe import Cell, CellError
from methods.registry import Needs

COLUMNS = ("prompt", "data_source", "reward_model")


def check(cell: Cell) -> None:
    """Files exist and have their columns, K fits the vocabulary, the reward works on a row, the method's needs are met.

    Raises CellError naming field, value and what is allowed.
    """
    needs = registry.get(cell.method).needs
    if Needs.TOP_K in needs and cell.panel.top_k == 0:
        raise CellError(f"panel.top_k = 0: method {cell.method} needs the rollout's top-K log-probs, allowed is >= 1")
    model_config = _model_config(cell)
    vocabulary = int(model_config["vocab_size"])
    wrong = rollout_settings.vllm_problem(model_config) if cell.panel.rollout_engine == "vllm" else None
    if wrong is not None:
        raise CellError(f"panel.{wrong}")
    if cell.panel.top_k > vocabulary:
        raise CellError(f"panel.top_k = {cell.panel.top_k}: allowed is 0 to the model's vocabulary size {vocabulary}")
    for name in ("train_files", "val_files"):
        for path in getattr(cell, name):
            row = _first_row(name, Path(path))
            _check_reward(cell, row, path)


def _model_config(cell: Cell) -> dict[str, Any]:
    path = Path(cell.model) / "config.json"
    if not path.is_file():
        raise CellError(f"model = {cell.model}: no config.json there; expected a Hugging Face model directory")
    return json.loads(path.read_text())


def _first_row(name: str, path: Path) -> dict[str, Any]:
    import pyarrow.parquet as pq

    if not path.is_file():
        raise CellError(f"{name} = {path}: no such file")
    try:
        file = pq.ParquetFile(path)
    except Exception as error:
        raise CellError(f"{name} = {path}: not a readable parquet file ({error})") from None
    missing = [column for column in COLUMNS if column not in file.schema_arrow.names]
    if missing:
        raise CellError(f"{name} = {path}: column {missing[0]!r} is missing; needed are {', '.join(COLUMNS)}")
    if file.metadata.num_rows == 0:
        raise CellError(f"{name} = {path}: no rows")
    return next(file.iter_batches(batch_size=1)).to_pylist()[0]


def _check_reward(cell: Cell, row: dict[str, Any], data: str) -> None:
    where = f"reward_function = {cell.reward_function.path}:{cell.reward_function.name}"
    function = load_reward(cell)
    truth = row["reward_model"].get("ground_truth")
    try:
        result = function(
            data_source=row["data_source"],
            solution_str=str(truth),
            ground_truth=truth,
            extra_info=row.get("extra_info"),
        )
        float(result["score"] if isinstance(result, dict) else result)
    except Exception as error:
        raise CellError(f"{where}: raised {type(error).__name__}: {error} on the first row of {data}") from error


def load_reward(cell: Cell) -> Callable[..., Any]:
    """The reward function of a cell. Raises CellError."""
    path, name = Path(cell.reward_function.path), cell.reward_function.name
    where = f"reward_function = {path}:{name}"
    if not path.is_file():
        raise CellError(f"{where}: no such file")
    spec = importlib.util.spec_from_file_location(f"tether_reward_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise CellError(f"{where}: importing it raised {type(error).__name__}: {error}") from error
    if not callable(getattr(module, name, None)):
        raise CellError(f"{where}: no function of that name in the file")
    return getattr(module, name)
