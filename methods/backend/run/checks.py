"""Everything about a cell that can be wrong, found before the training starts."""

from __future__ import annotations

from methods.backend.cell import Cell
from methods.backend.panel import CellError
from methods.backend.requirements import vocabulary_problem
from methods.backend.rollout import engines
from methods.backend.run.data_check import check_data
from methods.backend.run.model_check import length_problem, model_settings
from methods.backend.run.model_check import vocabulary_problem as embedding_problem


def check(cell: Cell) -> dict[str, int]:
    """The model can be trained and served by the engine, K fits method and vocabulary, data and reward are sound.

    Returns how many rows are dropped as too long, by field (`check_data`).
    Raises CellError naming field, value and what is allowed.
    """
    return check_data(cell, check_model(cell))


def check_model(cell: Cell) -> int:
    """As `check`, without data and reward; returns the size of the model's vocabulary."""
    try:
        model = model_settings(cell.model)
    except ValueError as error:
        raise CellError(f"model = {error}") from None
    vocabulary = int(model["vocab_size"])
    wrong = embedding_problem(cell.model, vocabulary)
    if wrong is not None:
        raise CellError(f"model = {wrong}")
    wrong = length_problem(model, cell.panel.prompt_length, cell.panel.response_length)
    if wrong is None and cell.panel.rollout_engine == "vllm":
        wrong = engines.vllm_problem(model)
    if wrong is None and cell.panel.top_k > vocabulary:
        wrong = f"top_k = {cell.panel.top_k}: allowed is 0 to the model's vocabulary size {vocabulary}"
    wrong = wrong or vocabulary_problem(cell.method, cell.needs, cell.panel.top_k, vocabulary)
    if wrong is not None:
        raise CellError(f"panel.{wrong}")
    return vocabulary
