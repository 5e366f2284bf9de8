"""Exact-match reward of the toy world, with the signature of verl's compute_score."""

from __future__ import annotations

from typing import Any

EOS = "<eos>"


def compute_score(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None, **_: Any) -> float:
    """1.0 iff the response is the right sequence of numbers, ended or cut right behind it; blanks aside.

    Given the text with its special tokens, any other of them makes the response wrong.
    """
    words = solution_str.split()
    if words[-1:] == [EOS]:
        words.pop()
    return float(words == ground_truth.split())
