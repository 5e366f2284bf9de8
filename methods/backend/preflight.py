"""Everything about a cell that can be wrong, found before the training starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from methods.backend import rollout_settings
from methods.backend.cell import Cell
from methods.backend.data_check import check_data
from methods.backend.needs import vocabulary_problem
from methods.backend.panel import CellError


def check(cell: Cell) -> None:
    """The engine can serve the model, K fits method and vocabulary, data and reward are sound.

    Raises CellError naming field, value and what is allowed.
    """
    model_config = _model_config(cell)
    vocabulary = int(model_config["vocab_size"])
    wrong = rollout_settings.vllm_problem(model_config) if cell.panel.rollout_engine == "vllm" else None
    if wrong is not None:
        raise CellError(f"panel.{wrong}")
    if cell.panel.top_k > vocabulary:
        raise CellError(f"panel.top_k = {cell.panel.top_k}: allowed is 0 to the model's vocabulary size {vocabulary}")
    wrong = vocabulary_problem(cell.method, cell.needs, cell.panel.top_k, vocabulary)
    if wrong is not None:
        raise CellError(f"panel.{wrong}")
    check_data(cell, vocabulary)


def _model_config(cell: Cell) -> dict[str, Any]:
    path = Path(cell.model) / "config.json"
    if not path.is_file():
        raise CellError(f"model = {cell.model}: no config.json there; expected a Hugging Face model directory")
    return json.loads(path.read_text())
