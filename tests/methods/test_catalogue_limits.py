"""Claim (property): at the edge of the number range the g of our methods is finite, and 0 for a token without A.

Impossible, certain and stale tokens under each of the three policies, alone in a row and all in one (field case 1).
Refused inputs are the claim of test_signals.py, a user's method that of test_check.py.
"""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from methods.signals import Scope, Signals, Support
from methods.support import with_sampled
from tests.methods.batches import coefficient
from tests.methods.helpers import SHIPPED

INF = math.inf
every_method = pytest.mark.parametrize("name", SHIPPED)

# A regulariser without |A| acts on a token without advantage too.
MOVES_WITHOUT_ADVANTAGE = {"dro", "drpo_unweighted"}

FAR = (-1.0, -101.0, -1e4, -INF, 0.0)
GRID = list(itertools.product(FAR, FAR, FAR[::2], (1.0, -1.0, 0.0)))


def far_tokens(dtype: torch.dtype, together: bool) -> Signals:
    """A token for each (log pi, log mu, log pi_old, A) of the grid: in one row, or a row each."""
    shape = (1, len(GRID)) if together else (len(GRID), 1)
    pi, mu, old, advantages = (torch.tensor(c, dtype=dtype).reshape(shape) for c in zip(*GRID, strict=True))
    sampled = torch.zeros(shape, dtype=torch.int64)
    ids, valid = with_sampled(torch.tensor([1, 2]).expand(*shape, 2), sampled)

    def slots(own: Tensor, others: list[float]) -> Tensor:
        return torch.cat([torch.tensor(others, dtype=dtype).expand(*shape, 2), own.unsqueeze(-1)], -1)

    def distribution(own: Tensor) -> Tensor:
        """[own, the rest on id 1, nothing on id 2] as log-probs."""
        p = own.exp().clamp(max=1.0)
        return torch.stack([p, 1 - p, torch.zeros_like(p)], -1).log()

    return Signals(
        logp_pi=pi,
        logp_mu=mu,
        advantages=advantages,
        response_mask=torch.ones(shape, dtype=torch.bool),
        logp_old=old,
        support=Support(ids, slots(mu, [-2.0, -INF]), slots(pi, [-INF, -3.0]), valid),
        sum_pi_squared=torch.full_like(pi, 0.5),
        entropy=torch.full_like(pi, 0.5),
        vocab_size=5,
        full=(distribution(mu), distribution(pi)),
        sampled=sampled,
        uniforms=torch.full_like(pi, 0.5),
        scope=Scope.MINI_BATCH,
    )


@every_method
@pytest.mark.parametrize("together", [True, False], ids=["one row", "a row each"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_log_ratio_breaks_a_method(name: str, dtype: torch.dtype, together: bool) -> None:
    """Field case 1: impossible, certain and stale tokens, alone and in one row; finite, and 0 where A = 0."""
    signals = far_tokens(dtype, together)
    g = coefficient(name, signals)
    assert torch.isfinite(g).all()
    if name not in MOVES_WITHOUT_ADVANTAGE:
        assert (g[signals.advantages == 0] == 0).all()


def test_the_exceptions_are_true() -> None:
    """A method listed as moving a token without advantage does."""
    signals = far_tokens(torch.float64, together=False)
    for name in MOVES_WITHOUT_ADVANTAGE:
        assert (coefficient(name, signals)[signals.advantages == 0] != 0).any(), name
