"""Claim (definition): group-relative advantages, with and without the standard deviation; silent groups stay silent."""

from __future__ import annotations

import math

import pytest
import torch

from reference_math.advantages import group_advantages
from tests.adapter import call


def test_by_hand() -> None:
    """Mean 0.5; sample deviation sqrt(1/3)."""
    rewards = torch.tensor([1.0, 0.0, 0.0, 1.0], dtype=torch.float64)
    assert group_advantages(rewards).tolist() == [0.5, -0.5, -0.5, 0.5]
    got = group_advantages(rewards, normalise=True, eps=0.0).tolist()
    assert got == pytest.approx([0.5 * 3**0.5, -0.5 * 3**0.5, -0.5 * 3**0.5, 0.5 * 3**0.5])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("reward", [0.1, 0.35, -0.7, 1 / 3, 1e6 + 0.1, 0.0])
def test_a_group_without_spread_is_silent(reward: float, normalise: bool, dtype: torch.dtype) -> None:
    """Field case 5: decimal rewards, whose mean is not exactly the reward; exactly 0."""
    for size in (1, 2, 3, 7, 8):
        rewards = torch.full((2, size), reward, dtype=dtype)
        assert (group_advantages(rewards, normalise=normalise, eps=0.0) == 0).all()


def test_rounding_is_no_spread() -> None:
    """.1 + 0.2 and 0.3 are one reward; 0.35 and 0.95 are two, and the seven share the same number."""
    assert call("grpo_adv", rewards=[0.1 + 0.2, 0.3], eps=0.0) == [0, 0]
    got = call("grpo_adv", rewards=[0.35] * 7 + [0.95], eps=0.0)
    assert len(set(got[:7])) == 1 and got[7] == pytest.approx(-7 * got[0]) and got[7] == pytest.approx(7 / 8 * 8**0.5)


def test_groups_are_independent() -> None:
    rewards = torch.tensor([[1.0, 0.0, 0.0], [5.0, 5.0, 5.0]])
    both = group_advantages(rewards, normalise=True)
    assert torch.equal(both[0], group_advantages(rewards[0], normalise=True)) and (both[1] == 0).all()


def test_a_reward_that_is_no_number_is_refused() -> None:
    for bad in (math.nan, math.inf, -math.inf):
        with pytest.raises(ValueError, match=r"rewards\[1\] = .*not finite"):
            group_advantages(torch.tensor([0.0, bad]))
    with pytest.raises(ValueError, match="eps = -1"):
        group_advantages(torch.tensor([0.0, 1.0]), eps=-1)


def test_half_precision_rewards_are_centred_in_float32() -> None:
    assert group_advantages(torch.tensor([1.0, 0.0], dtype=torch.bfloat16)).dtype == torch.float32
    assert group_advantages(torch.zeros(0)).shape == (0,)
