"""Claim: every numeric case of tests/data/cases.json comes out right, and none of its known mistakes does.

The cases are single hand-computed points; that a formula holds everywhere is the claim of test_definitions.py.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.adapter import call

CASES = json.loads((Path(__file__).parents[1] / "data" / "cases.json").read_text())
# What the catalogue does not compute yet, by function and method: other cases of a function are no excuse.
LACKING: set[tuple[str, str | None]] = set()
# Cases without their own tolerance are exact in real numbers.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-6}


def kind(case: dict[str, Any]) -> tuple[str, str | None]:
    """Function and, where there is one, method of a case."""
    return case["fn"], case["args"].get("method")


def lacking() -> set[tuple[str, str | None]]:
    """Kinds of cases that the adapter refuses."""
    found = set()
    for case in CASES:
        try:
            call(case["fn"], **case["args"])
        except NotImplementedError:
            found.add(kind(case))
    return found


def refused(case: dict[str, Any]) -> bool:
    """Whether the adapter refuses this one case of a kind that LACKING names."""
    if kind(case) not in LACKING:
        return False
    try:
        call(case["fn"], **case["args"])
    except NotImplementedError:
        return True
    return False


COVERED = [case for case in CASES if not refused(case)]


def close(got: Any, want: Any, case: dict[str, Any], dtype: torch.dtype) -> bool:
    """Elementwise agreement within the case's tol and rel, or the dtype's."""
    if isinstance(want, list):
        return len(got) == len(want) and all(close(g, w, case, dtype) for g, w in zip(got, want, strict=True))
    want = float(want)
    if not math.isfinite(want):
        return got == want or (math.isnan(want) and math.isnan(got))
    rel = case.get("rel", TOLERANCE[dtype])
    return math.isclose(got, want, rel_tol=rel, abs_tol=case.get("tol", TOLERANCE[dtype]))


def right(got: Any, case: dict[str, Any], dtype: torch.dtype) -> bool:
    """Is `got` one of the answers the case accepts?"""
    if "at_least" in case and got >= float(case["at_least"]):
        return True
    return any(close(got, want, case, dtype) for want in [case["want"], *case.get("accept", [])])


def outcome(case: dict[str, Any], dtype: torch.dtype) -> Any:
    try:
        return call(case["fn"], dtype=dtype, **case["args"])
    except ValueError as refusal:
        if case.get("or_raises"):
            return refusal
        raise


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("case", COVERED, ids=[case["id"] for case in COVERED])
def test_case(case: dict[str, Any], dtype: torch.dtype) -> None:
    got = outcome(case, dtype)
    if isinstance(got, ValueError):
        return
    assert right(got, case, dtype), f"{case['id']}: got {got}, want {case['want']} = {case['hand']} ({case['why']})"
    for mistake, value in case.get("known_wrong", {}).items():
        assert not close(got, value, {}, dtype), f"{case['id']}: {got} is the value of the mistake '{mistake}'"


def test_a_wrong_number_is_noticed() -> None:
    """The comparison itself: a value off by twice the tolerance, a NaN and a short list are all wrong."""
    case = {"want": 0.25, "tol": 1e-3, "rel": 0.0}
    assert right(0.2509, case, torch.float64)
    assert not right(0.252, case, torch.float64)
    assert not right(math.nan, case, torch.float64)
    assert not right([0.25], {"want": [0.25, 0.25]}, torch.float64)
    assert right(math.inf, {"want": 5.0, "at_least": 4.0}, torch.float64)
    assert not right(3.9, {"want": 5.0, "at_least": 4.0}, torch.float64)


def test_what_is_not_covered_is_a_known_list() -> None:
    """So that a broken import cannot make cases disappear."""
    assert lacking() == LACKING
