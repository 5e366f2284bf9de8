"""One response scored by a reward function with verl's `compute_score` signature."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any


class RewardError(RuntimeError):
    """A reward function raised, or gave no finite number; the message names the response."""


def score_response(function: Callable[..., Any], row: Mapping[str, Any], response: str) -> tuple[float, dict[str, Any]]:
    """(reward, further values that the function gives beside it) of one response to a row's prompt.

    The function gives a number, or a dictionary with `score`. Raises RewardError.
    """
    try:
        result = function(
            data_source=row["data_source"],
            solution_str=response,
            ground_truth=row["reward_model"]["ground_truth"],
            extra_info=row.get("extra_info"),
        )
        extra = dict(result) if isinstance(result, dict) else {}
        score = float(extra.pop("score") if isinstance(result, dict) else result)
    except Exception as error:
        raise RewardError(f"raised {type(error).__name__}: {error} for the response {response!r}") from error
    if not math.isfinite(score):
        raise RewardError(f"gave {score} for the response {response!r}; allowed is a finite number")
    return score, extra
