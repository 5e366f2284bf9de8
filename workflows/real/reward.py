"""Reward of the sums, with the signature of verl's compute_score."""

from __future__ import annotations

import re
from typing import Any

_NUMBER = re.compile(r"-?\d+")


def compute_score(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None, **_: Any) -> float:
    """1.0 iff the last number of the response is the sum."""
    numbers = _NUMBER.findall(solution_str)
    return float(bool(numbers) and int(numbers[-1]) == int(ground_truth))
