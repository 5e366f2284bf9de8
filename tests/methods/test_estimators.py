"""Claim (definition, gradient): value and gradient of k1, k2, k3 are what the field knows of them (field case 24)."""

from __future__ import annotations

import math

import pytest
import torch

from reference_math.estimators import ESTIMATORS, k1, k2, k3
from tests.methods.helpers import tensor

INF = math.inf


def test_values_by_hand() -> None:
    """log pi = -1 against -1.5: 0.5, 0.125, e^-0.5 - 0.5."""
    got = [ESTIMATORS[name](tensor(-1.0), tensor(-1.5)).item() for name in ("k1", "k2", "k3")]
    assert got == pytest.approx([0.5, 0.125, math.exp(-0.5) - 0.5])


def test_mean_gradients() -> None:
    """pi = (0.4, 0.4, 0.2), ref = (0.5, 0.3, 0.2), logit 0: the true slope -0.0995836; k1 0, k2 right, k3 pi_0 -
    ref_0."""
    ref = tensor([0.5, 0.3, 0.2])

    def slope(of) -> float:
        logits = tensor([0.4, 0.4, 0.2]).log().requires_grad_()
        of(logits.log_softmax(-1)).backward()
        return logits.grad[0].item()

    assert slope(lambda logp: (logp.exp() * (logp - ref.log())).sum()) == pytest.approx(-0.0995836, abs=1e-7)
    want = {"k1": 0.0, "k2": -0.0995836, "k3": -0.1}
    for name, estimator in ESTIMATORS.items():
        got = slope(lambda logp, f=estimator: (logp.exp().detach() * f(logp, ref.log())).sum())
        assert got == pytest.approx(want[name], abs=1e-7), name


def test_mean_values() -> None:
    """Under pi, k1 and k3 average to KL(pi || ref); k2 does not."""
    pi, ref = tensor([0.4, 0.4, 0.2]), tensor([0.5, 0.3, 0.2])
    truth = (pi * (pi / ref).log()).sum().item()
    means = {name: (pi * f(pi.log(), ref.log())).sum().item() for name, f in ESTIMATORS.items()}
    assert means["k1"] == pytest.approx(truth) and means["k3"] == pytest.approx(truth)
    assert abs(means["k2"] - truth) > 1e-4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_edges(dtype: torch.dtype) -> None:
    """Impossible on one side: infinitely far; on both: no difference; far apart: the exact number."""

    def at(f, logp: float, ref: float) -> float:
        return f(torch.tensor(logp, dtype=dtype), torch.tensor(ref, dtype=dtype)).item()

    assert at(k1, -1.0, -101.0) == 100 and at(k2, -1.0, -101.0) == 5000 and at(k3, -1.0, -101.0) == pytest.approx(99)
    assert at(k1, -INF, -1.0) == -INF and at(k2, -INF, -1.0) == INF and at(k3, -INF, -1.0) == INF
    assert at(k1, -1.0, -INF) == INF and at(k3, -1.0, -INF) == INF
    assert all(at(f, -INF, -INF) == 0 for f in ESTIMATORS.values())
    assert at(k3, -101.0, -1.0) > 1e38


def test_k3_is_never_negative() -> None:
    """Close policies in float32, where e^x - 1 - x is pure cancellation: non-negative and within its second order."""
    x = torch.linspace(-1e-3, 1e-3, 2001)
    value = k3(x - 1, torch.full_like(x, -1.0))
    assert (value >= 0).all()
    gap = (x - 1) + 1
    torch.testing.assert_close(value, 0.5 * gap.square(), rtol=2e-2, atol=1e-10)
