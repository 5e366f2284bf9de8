"""Everything about a run that can be wrong, found before the training starts."""

from __future__ import annotations

from methods.backend.requirements import vocabulary_problem
from methods.backend.rollout import engines
from methods.backend.run.data_check import check_data
from methods.backend.run.model_check import length_problem, model_settings
from methods.backend.run.model_check import vocabulary_problem as embedding_problem
from methods.backend.run_config import RunConfig
from methods.backend.setting import ConfigError


def check(run: RunConfig) -> dict[str, int]:
    """The model can be trained and served by the engine, K fits method and vocabulary, data and reward are sound.

    Returns how many rows are dropped as too long, by field (`check_data`).
    Raises ConfigError naming field, value and what is allowed.
    """
    return check_data(run, check_model(run))


def check_model(run: RunConfig) -> int:
    """As `check`, without data and reward; returns the size of the model's vocabulary."""
    try:
        model = model_settings(run.model)
    except ValueError as error:
        raise ConfigError(f"model = {error}") from None
    vocabulary = int(model["vocab_size"])
    wrong = embedding_problem(run.model, vocabulary)
    if wrong is not None:
        raise ConfigError(f"model = {wrong}")
    wrong = length_problem(model, run.setting.prompt_length, run.setting.response_length)
    if wrong is None and run.setting.rollout_engine == "vllm":
        wrong = engines.vllm_problem(model)
    if wrong is None and run.setting.top_k > vocabulary:
        wrong = f"top_k = {run.setting.top_k}: allowed is 0 to the model's vocabulary size {vocabulary}"
    wrong = wrong or vocabulary_problem(run.method, run.needs, run.setting.top_k, vocabulary)
    if wrong is not None:
        raise ConfigError(f"setting.{wrong}")
    return vocabulary
