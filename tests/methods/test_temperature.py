"""Claim (definition): log-probs at the sampling temperature, as the rollout has them (field case 28)."""

from __future__ import annotations

import math

import pytest
import torch

from reference_math.temperature import log_prob_at_temperature
from tests.methods.helpers import tensor

INF = math.inf


def at(logits: list[float], k: int, temperature: float, dtype: torch.dtype = torch.float64) -> float:
    return log_prob_at_temperature(torch.tensor(logits, dtype=dtype), torch.tensor(k), temperature).item()


def test_by_hand() -> None:
    """Logits (2, 1, 0) at T = 0.5 are (4, 2, 0); divided after the softmax they would be no log-probs."""
    assert at([2, 1, 0], 0, 0.5) == pytest.approx(-math.log(1 + math.exp(-2) + math.exp(-4)))
    assert at([2, 1, 0], 2, 1.0) == pytest.approx(-math.log(1 + math.exp(1) + math.exp(2)))


def test_one_sided_temperature_is_the_fields_case() -> None:
    """T = 0.6 on one side only: ratios 0.8146, 1.5867, 3.0904; on both sides 1."""
    logits, ids = tensor([[2.0, 1.0, 0.0]] * 3), torch.arange(3)
    cold, warm = (log_prob_at_temperature(logits, ids, t) for t in (0.6, 1.0))
    torch.testing.assert_close((warm - cold).exp(), tensor([0.8146, 1.5867, 3.0904]), rtol=1e-4, atol=0)


def test_edges() -> None:
    """Impossible tokens, logits that a small temperature would overflow, half precision."""
    assert at([0, 0, -INF], 2, 0.7) == -INF and at([0, 0, -INF], 0, 0.7) == pytest.approx(-math.log(2))
    assert at([3e38, 3e38], 1, 1e-3, torch.float32) == pytest.approx(-math.log(2))
    assert at([65504, -65504], 0, 1.0, torch.float16) == 0
    assert log_prob_at_temperature(torch.zeros(2, dtype=torch.bfloat16), torch.tensor(0), 1.0).dtype == torch.float32


@pytest.mark.parametrize("temperature", [0, 0.0, -1.0, math.nan, INF])
def test_a_bad_temperature_is_refused(temperature: float) -> None:
    with pytest.raises(ValueError, match="temperature = "):
        at([1, 0], 0, temperature)


def test_bad_logits_and_ids_are_refused() -> None:
    for logits in ([math.nan, 0.0], [INF, 0.0], [-INF, -INF]):
        with pytest.raises(ValueError, match="logits"):
            at(logits, 0, 1.0)
    for k in (-1, 2):
        with pytest.raises(ValueError, match=f"id {k}: allowed is 0 to 1"):
            at([1, 0], k, 1.0)
