"""Exact-match reward of the toy world, with the signature of verl's compute_score."""

from __future__ import annotations

from typing import Any


def compute_score(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None, **_: Any) -> float:
    """1.0 iff the response is the right sequence of numbers, blanks aside."""
    return float(solution_str.split() == ground_truth.split())
