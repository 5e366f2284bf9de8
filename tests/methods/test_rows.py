"""Claim (definition): statistics of a row are those of its valid tokens, whatever else stands there.

Not covered: what the methods do with them.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from methods.rows import (
    geometric_ratio,
    prefix_sum,
    raw_log_ratio,
    row_max,
    row_mean,
    row_quantile,
    row_sum,
    sequence_ratio,
)
from tests.methods.helpers import tensor

INF, NAN = math.inf, math.nan
VALUES = tensor([[1.0, NAN, 3.0, 2.0], [5.0, INF, -INF, NAN], [NAN, NAN, NAN, NAN]])
MASK = torch.tensor([[1, 0, 1, 1], [1, 0, 0, 0], [0, 0, 0, 0]]).bool()


def test_by_hand() -> None:
    """Rows (1, 3, 2), (5) and none."""
    assert row_sum(VALUES, MASK).flatten().tolist() == [6, 5, 0]
    assert row_mean(VALUES, MASK).flatten().tolist() == [2, 5, 0]
    assert row_max(VALUES, MASK).flatten().tolist() == [3, 5, 0]
    assert prefix_sum(VALUES, MASK).tolist() == [[0, 1, 1, 4], [0, 5, 5, 5], [0, 0, 0, 0]]
    assert row_quantile(VALUES, MASK, 0.75).flatten().tolist() == [2.5, 5, 0]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_quantile_is_numpys(share: float) -> None:
    random = torch.Generator().manual_seed(0)
    values = torch.randn(20, 30, generator=random, dtype=torch.float64)
    mask = torch.rand(20, 30, generator=random) < 0.5
    want = [np.quantile(row[keep].numpy(), share) for row, keep in zip(values, mask, strict=True)]
    torch.testing.assert_close(row_quantile(values, mask, share).flatten(), tensor(want))


def test_ratios_of_a_row_by_hand() -> None:
    """Log-ratios 0.1 and 0.3, a garbage token, and an empty row (field case 25)."""
    a, b = tensor([[-1.0, -2.0, NAN], [0.0, 0.0, 0.0]]), tensor([[-1.1, -2.3, 0.0], [0.0, 0.0, 0.0]])
    mask = torch.tensor([[1, 1, 0], [0, 0, 0]]).bool()
    torch.testing.assert_close(sequence_ratio(a, b, mask), tensor([[math.exp(0.4)], [1.0]]))
    torch.testing.assert_close(geometric_ratio(a, b, mask), tensor([[math.exp(0.2)], [1.0]]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_impossible_tokens(dtype: torch.dtype) -> None:
    """One: ratio 0, or the limit e^20 where mu holds it impossible; both: no difference; mixed in a row: a number."""
    one = torch.ones(1, 2, dtype=torch.bool)

    def ratio(a: list[float], b: list[float]) -> float:
        return sequence_ratio(torch.tensor([a], dtype=dtype), torch.tensor([b], dtype=dtype), one).item()

    assert ratio([-INF, -1.0], [-1.0, -1.0]) == 0
    assert ratio([-1.0, -1.0], [-INF, -1.0]) == pytest.approx(math.exp(20))
    assert ratio([-INF, -1.0], [-INF, -1.0]) == 1
    assert math.isfinite(ratio([-INF, -1.0], [-1.0, -INF]))
    assert raw_log_ratio(torch.tensor([-50.0]), torch.tensor([-1.0])).item() == -49


def test_the_limit_is_on_the_row_not_on_its_tokens() -> None:
    """Log-ratios 30 and -30 cancel; limited one by one they would too, but 30 and -25 would not give 5."""
    a, b = tensor([[-1.0, -26.0]]), tensor([[-31.0, -1.0]])
    torch.testing.assert_close(sequence_ratio(a, b, torch.ones(1, 2).bool()), tensor([[math.exp(5)]]))
