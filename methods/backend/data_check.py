"""Checks of a cell's data and reward: every row, before the training starts."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from methods.backend.cell import Cell
from methods.backend.panel import CellError

COLUMNS = ("prompt", "data_source", "reward_model")


def check_data(cell: Cell, vocabulary: int) -> None:
    """Files, columns and rows; prompts that the tokenizer renders within panel.prompt_length; a reward that works.

    Raises CellError naming field, file, row and what is allowed.
    """
    tokenizer = _tokenizer(cell, vocabulary)
    train = [row for path in cell.train_files for row in _rows("train_files", Path(path), cell, tokenizer)]
    if len(train) < cell.panel.prompts:
        raise CellError(
            f"panel.prompts = {cell.panel.prompts}: allowed is at most the {len(train)} rows of train_files"
        )
    val = [row for path in cell.val_files for row in _rows("val_files", Path(path), cell, tokenizer)]
    sources = sorted({str(row["data_source"]) for row in val})
    if len(sources) > 1:
        raise CellError(f"val_files: data_source has {len(sources)} values ({', '.join(sources)}); allowed is one")
    _check_reward(cell, train[0])
    _check_reward(cell, val[0])


def _tokenizer(cell: Cell, vocabulary: int) -> Any:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(cell.model)
    except Exception as error:
        raise CellError(f"model = {cell.model}: its tokenizer does not load ({error})") from None
    if not tokenizer.chat_template:
        raise CellError(f"model = {cell.model}: its tokenizer has no chat template, which renders the prompts")
    if len(tokenizer) > vocabulary:
        raise CellError(
            f"model = {cell.model}: its tokenizer has {len(tokenizer)} ids, the model's vocab_size is {vocabulary}"
        )
    return tokenizer


def _rows(name: str, path: Path, cell: Cell, tokenizer: Any) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    if not path.is_file():
        raise CellError(f"{name} = {path}: no such file")
    try:
        file = pq.ParquetFile(path)
        columns = file.schema_arrow.names
    except Exception as error:
        raise CellError(f"{name} = {path}: not a readable parquet file ({error})") from None
    missing = [column for column in COLUMNS if column not in columns]
    if missing:
        raise CellError(f"{name} = {path}: column {missing[0]!r} is missing; needed are {', '.join(COLUMNS)}")
    rows = file.read([*COLUMNS, *({"extra_info"} & set(columns))]).to_pylist()
    if not rows:
        raise CellError(f"{name} = {path}: no rows")
    for number, row in enumerate(rows):
        _check_row(f"{name} = {path}, row {number}", row, cell, tokenizer)
    return rows


def _check_row(where: str, row: Mapping[str, Any], cell: Cell, tokenizer: Any) -> None:
    prompt, reward_model = row["prompt"], row["reward_model"]
    messages = isinstance(prompt, list) and prompt and all(isinstance(m, dict) and "content" in m for m in prompt)
    if not messages:
        raise CellError(f"{where}: prompt = {prompt!r}: allowed is a list of messages with role and content")
    if not isinstance(reward_model, dict) or "ground_truth" not in reward_model:
        raise CellError(f"{where}: reward_model = {reward_model!r}: allowed is an object with ground_truth")
    ids = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=True, return_dict=False)
    if len(ids) > cell.panel.prompt_length:
        raise CellError(
            f"{where}: prompt has {len(ids)} tokens, panel.prompt_length = {cell.panel.prompt_length} allows no more"
        )


def _check_reward(cell: Cell, row: Mapping[str, Any]) -> None:
    """With the right answer, a wrong one and none: a reward must score whatever a policy writes."""
    where = f"reward_function = {cell.reward_function.path}:{cell.reward_function.name}"
    function = load_reward(cell)
    truth = row["reward_model"]["ground_truth"]
    for response in (str(truth), "no answer", ""):
        try:
            result = function(
                data_source=row["data_source"],
                solution_str=response,
                ground_truth=truth,
                extra_info=row.get("extra_info"),
            )
            score = float(result["score"] if isinstance(result, dict) else result)
        except Exception as error:
            raise CellError(f"{where}: raised {type(error).__name__}: {error} for the response {response!r}") from error
        if not math.isfinite(score):
            raise CellError(f"{where}: gave {score} for the response {response!r}; allowed is a finite number")


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
