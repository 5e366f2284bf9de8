"""Checks of a run's data and reward: every row, before the training starts."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from methods.backend.rollout.reward import RewardError, score_response
from methods.backend.run.model_check import end_problem
from methods.backend.run_config import RunConfig
from methods.backend.setting import ConfigError

COLUMNS = ("prompt", "data_source", "reward_model")
# datasets.load_dataset, by which verl reads its files, takes these for patterns, and Hydra the last for a reference.
PATTERNS = ("*", "?", "[", "]", "::", "://", "${")


def path_problem(path: str) -> str | None:
    """Whether a data file can be read by the name it has, and is there; cheap."""
    for text in PATTERNS:
        if text in path:
            return f"{path}: the name has {text!r}, a pattern for verl's reader; allowed are names without {PATTERNS}"
    if not path.endswith(".parquet"):
        return f"{path}: allowed is a file whose name ends in .parquet"
    return None if Path(path).is_file() else f"{path}: no such file"


def check_data(run: RunConfig, vocabulary: int) -> dict[str, int]:
    """Files, columns and rows; prompts that the tokenizer renders within setting.prompt_length; a reward that works.

    Returns how many rows `setting.overlong_prompts = "drop"` leaves out, by field; nothing where it leaves out none.
    Raises ConfigError naming field, file, row and what is allowed.
    """
    tokenizer = load_tokenizer(run, vocabulary)
    kept, dropped = {}, {}
    for name in ("train_files", "val_files"):
        rows = [row for path in getattr(run, name) for row in _rows(name, path, run, tokenizer)]
        kept[name] = [row for row in rows if row is not None]
        dropped[name] = len(rows) - len(kept[name])
        if not kept[name]:
            raise ConfigError(
                f"setting.prompt_length = {run.setting.prompt_length}: every prompt of {name} is longer, and "
                "setting.overlong_prompts = 'drop' leaves none"
            )
    if len(kept["train_files"]) < run.setting.prompts:
        raise ConfigError(
            f"setting.prompts = {run.setting.prompts}: allowed is at most the {len(kept['train_files'])} rows of "
            "train_files" + (f" ({dropped['train_files']} were dropped)" if dropped["train_files"] else "")
        )
    reward_scores(run, kept["train_files"][0])
    # The reward may treat each source in its own way.
    first = {str(row["data_source"]): row for row in reversed(kept["val_files"])}
    for row in first.values():
        reward_scores(run, row)
    return {name: count for name, count in dropped.items() if count}


def load_tokenizer(run: RunConfig, vocabulary: int) -> Any:
    """The tokenizer with the setting's chat template. Raises ConfigError where it can't render, end or pad."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(run.model)
    except Exception as error:
        raise ConfigError(f"model = {run.model}: its tokenizer does not load ({error})") from None
    template = run.setting.template()
    if template is not None:
        tokenizer.chat_template = template
    if not tokenizer.chat_template:
        raise ConfigError(
            f"model = {run.model}: its tokenizer has no chat template, which renders the prompts; allowed beside it "
            "are setting.chat_template = false (the messages' contents as they are) and a file"
        )
    wrong = end_problem(run.model, tokenizer)
    if wrong is not None:
        raise ConfigError(f"model = {wrong}")
    if len(tokenizer) > vocabulary:
        raise ConfigError(
            f"model = {run.model}: its tokenizer has {len(tokenizer)} ids, the model's vocab_size is {vocabulary}"
        )
    return tokenizer


def _rows(name: str, path: str, run: RunConfig, tokenizer: Any) -> list[dict[str, Any] | None]:
    """Rows of a file; None for one whose prompt is too long, where such rows are dropped."""
    wrong = path_problem(path)
    if wrong is not None:
        raise ConfigError(f"{name} = {wrong}")
    rows = read_rows(name, path)
    return [
        row if _fits(f"{name} = {path}, row {number}", row, run, tokenizer) else None for number, row in enumerate(rows)
    ]


def read_rows(name: str, path: str) -> list[dict[str, Any]]:
    """The rows of a parquet file in verl's layout; name: of the field, for messages. Raises ConfigError."""
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
        columns = file.schema_arrow.names
    except Exception as error:
        raise ConfigError(f"{name} = {path}: not a readable parquet file ({error})") from None
    missing = [column for column in COLUMNS if column not in columns]
    if missing:
        raise ConfigError(f"{name} = {path}: column {missing[0]!r} is missing; needed are {', '.join(COLUMNS)}")
    rows = file.read([*COLUMNS, *({"extra_info"} & set(columns))]).to_pylist()
    if not rows:
        raise ConfigError(f"{name} = {path}: no rows")
    for number, row in enumerate(rows):
        _check_row(f"{name} = {path}, row {number}", row)
    return rows


def _check_row(where: str, row: Mapping[str, Any]) -> None:
    prompt, reward_model = row["prompt"], row["reward_model"]
    messages = isinstance(prompt, list) and prompt and all(isinstance(m, dict) and "content" in m for m in prompt)
    if not messages:
        raise ConfigError(f"{where}: prompt = {prompt!r}: allowed is a list of messages with role and content")
    if not isinstance(reward_model, dict) or "ground_truth" not in reward_model:
        raise ConfigError(f"{where}: reward_model = {reward_model!r}: allowed is an object with ground_truth")


def _fits(where: str, row: Mapping[str, Any], run: RunConfig, tokenizer: Any) -> bool:
    length = prompt_tokens(where, row, tokenizer)
    if length <= run.setting.prompt_length:
        return True
    if run.setting.overlong_prompts == "drop":
        return False
    raise ConfigError(
        f"{where}: prompt has {length} tokens, setting.prompt_length = {run.setting.prompt_length} allows no more (or "
        "setting.overlong_prompts = 'drop')"
    )


def prompt_tokens(where: str, row: Mapping[str, Any], tokenizer: Any) -> int:
    """Tokens of a row's prompt. Raises ConfigError where the template refuses it, or renders nothing."""
    try:
        ids = tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, tokenize=True, return_dict=False)
    except Exception as error:
        raise ConfigError(f"{where}: the chat template raised {type(error).__name__}: {error}") from None
    if not ids:
        raise ConfigError(f"{where}: the chat template renders an empty prompt; allowed is one token at least")
    return len(ids)


def reward_scores(run: RunConfig, row: Mapping[str, Any]) -> list[tuple[str, float]]:
    """(response, reward) of the right answer, a wrong one and none: a reward must score whatever a policy writes.

    Raises ConfigError where it raises, or gives no finite number.
    """
    scores = []
    where = f"reward_function = {run.reward_function.path}:{run.reward_function.name}"
    function = load_reward(run)
    truth = row["reward_model"]["ground_truth"]
    for response in (str(truth), "no answer", ""):
        try:
            score, _ = score_response(function, row, response)
        except RewardError as error:
            raise ConfigError(f"{where}: {error}") from error
        scores.append((response, score))
    return scores


def load_reward(run: RunConfig) -> Callable[..., Any]:
    """The reward function of a run. Raises ConfigError."""
    path, name = Path(run.reward_function.path), run.reward_function.name
    where = f"reward_function = {path}:{name}"
    if not path.is_file():
        raise ConfigError(f"{where}: no such file")
    spec = importlib.util.spec_from_file_location(f"tether_reward_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ConfigError(f"{where}: importing it raised {type(error).__name__}: {error}") from error
    if not callable(getattr(module, name, None)):
        raise ConfigError(f"{where}: no function of that name in the file")
    return getattr(module, name)
