"""Claim: the random control drops exactly as many tokens as its reference for each sign of A, drawn by the uniforms.

That seeded uniforms reach the loss, and the same ones on every rank, is the backend's claim.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from methods.catalogue.predictive_random import REFERENCES
from methods.directions import random_direction
from methods.masks import topk_divergence
from methods.measures import FORWARD_KL
from methods.signals import Signals, sanitise
from tests.methods.helpers import Line, random_rows, tensor

REFERENCE_LINES = {
    "ratio": ("dppo_topk_kl", {}),
    **{rule: ("predictive", {"tail": rule}) for rule in REFERENCES if rule != "ratio"},
}


def signals_of(seed: int) -> Signals:
    return random_rows(seed, batch=8, length=16).signals()


def dropped(signals: Signals, method: str, options: dict) -> torch.Tensor:
    return (Line(method, options, None).coefficient(signals) == 0) & (signals.advantages != 0)


@pytest.mark.parametrize("reference", REFERENCES)
@pytest.mark.parametrize("delta", [0.15, (0.3, 0.05)])
def test_the_counts_match(reference: str, delta) -> None:
    signals = signals_of(0)
    method, options = REFERENCE_LINES[reference]
    want = dropped(signals, method, {**options, "delta": delta})
    got = dropped(signals, "predictive_random", {"reference": reference, "delta": delta})
    for sign in (1, -1):
        chosen = torch.sign(signals.advantages) == sign
        assert int(got[chosen].sum()) == int(want[chosen].sum()) > 0
    assert not torch.equal(got, want)


def test_only_tokens_outside_are_drawn_and_those_with_the_smallest_numbers() -> None:
    signals = signals_of(1)
    got = dropped(signals, "predictive_random", {})
    outside = topk_divergence(sanitise(signals), FORWARD_KL) > 0.15
    assert not (got & ~outside).any()
    for sign in (1, -1):
        pool = outside & (torch.sign(signals.advantages) == sign)
        drawn, left = signals.uniforms[got & pool], signals.uniforms[~got & pool]
        assert len(drawn) and len(left) and drawn.max() < left.min()


def test_the_numbers_decide_and_nothing_else_is_random() -> None:
    signals = signals_of(2)
    first = dropped(signals, "predictive_random", {})
    assert torch.equal(first, dropped(signals, "predictive_random", {}))
    other = dropped(replace(signals, uniforms=signals.uniforms.flip(0)), "predictive_random", {})
    assert int(other.sum()) == int(first.sum()) and not torch.equal(other, first)


def test_equal_numbers_still_give_the_count() -> None:
    signals = signals_of(3)
    want = int(dropped(signals, "predictive_random", {}).sum())
    tied = replace(signals, uniforms=torch.zeros_like(signals.uniforms))
    assert int(dropped(tied, "predictive_random", {}).sum()) == want


def test_padding_is_neither_counted_nor_drawn() -> None:
    """With the smallest numbers under the padding, the tokens inside still match the reference inside."""
    signals = signals_of(4)
    mask = torch.arange(16).expand(8, 16) < 9
    padded = replace(signals, response_mask=mask, uniforms=torch.where(mask, signals.uniforms, 0.0))
    got = dropped(padded, "predictive_random", {})[mask]
    assert int(got.sum()) == int(dropped(padded, "predictive_aggregated", {})[mask].sum()) > 0


def test_by_hand() -> None:
    """Three of four outside, A > 0 but for the last: two are wanted, those with 0.1 and 0.2; of A < 0 none is."""
    signals = Signals(
        logp_pi=tensor([[-1.0] * 5]),
        logp_mu=tensor([[-1.0] * 5]),
        advantages=tensor([[2.0, 1.0, 3.0, 1.0, -1.0]]),
        response_mask=torch.ones(1, 5),
        uniforms=tensor([[0.9, 0.2, 0.1, 0.05, 0.0]]),
    )
    outside = torch.tensor([[True, True, True, False, True]])
    direction = random_direction(signals, outside, tensor([[1.0, 1.0, -1.0, 1.0, 1.0]]))
    assert direction.tolist() == [[0.0, 1.0, 1.0, 0.0, 0.0]]
    assert random_direction(signals, outside, tensor([[0.0] * 5])).abs().sum() == 0
    everything = random_direction(signals, outside, signals.advantages)
    assert everything.tolist() == [[1.0, 1.0, 1.0, 0.0, -1.0]]
