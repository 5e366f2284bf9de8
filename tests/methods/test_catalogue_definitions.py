"""Claim (definition, gradient): in float64 each method's g is the derivative of its paper's objective in log pi.

The objectives are written independently in objectives.py, stop-gradients where the papers have them; rows are ragged,
near and far off-policy, with both signs of A and A = 0. Not covered: kinks, and inputs at the edge of the number range.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from methods.aggregation import aggregate, token_losses
from tests.methods.batches import Batch, Data, coefficient, random_batch
from tests.methods.entries import ENTRIES, Entry

EXACT = {"rtol": 1e-9, "atol": 1e-11}
SEEDS = range(3)
every_entry = pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.label)


def derivative(entry: Entry, batch: Batch) -> Tensor:
    logp_pi = batch.signals.logp_pi.requires_grad_()
    (gradient,) = torch.autograd.grad(entry.build(Data.of(batch))(logp_pi), logp_pi)
    return gradient


def check(entry: Entry, seed: int) -> Tensor:
    """g against autograd; returns which tokens with A != 0 lost their gradient, [tokens] bool."""
    batch = random_batch(seed, per_response=entry.per_response)
    g = coefficient(entry.method, batch.signals, entry.options)
    torch.testing.assert_close(g, derivative(entry, batch), **EXACT)
    signals = batch.signals
    return g[signals.response_mask & (signals.advantages != 0)] == 0


@every_entry
def test_g_is_the_derivative_of_the_objective(entry: Entry) -> None:
    for seed in SEEDS:
        check(entry, seed)


@pytest.mark.parametrize(
    "entry",
    [e for e in ENTRIES if not e.method.startswith(("pg_", "cispo", "spo", "sapo", "dro", "drpo", "penalty"))],
    ids=lambda entry: entry.label,
)
def test_the_rows_are_no_soft_target(entry: Entry) -> None:
    """What can drop tokens does, and keeps others; a regulariser is on for some tokens and off for none at all."""
    dropped = torch.cat([check(entry, seed) for seed in SEEDS])
    if entry.method in ("mask_drpo", "predictive_drpo"):
        assert not dropped.any()
    else:
        assert dropped.any() and not dropped.all()


@every_entry
def test_the_objectives_pass_gradcheck(entry: Entry) -> None:
    """So that the derivative compared with is the objective's own."""
    batch = random_batch(7, per_response=entry.per_response, length=4)
    objective = entry.build(Data.of(batch))
    assert torch.autograd.gradcheck(objective, (batch.signals.logp_pi.requires_grad_(),), eps=1e-7, atol=1e-5)


@pytest.mark.parametrize("method", ["gspo", "geo_mean"])
def test_the_mean_over_tokens_makes_it_the_papers_loss(method: str) -> None:
    """seq-mean-token-mean supplies the 1/|y| of the geometric mean: the gradient is that of the mean over responses."""
    entry = next(e for e in ENTRIES if e.method == method)
    batch = random_batch(1, per_response=True)
    signals = batch.signals
    logp_pi = signals.logp_pi.requires_grad_()
    g = coefficient(method, signals, entry.options)
    aggregate(token_losses(g, logp_pi), signals.response_mask, "seq-mean-token-mean").backward()
    ours, lengths = logp_pi.grad, signals.response_mask.sum(-1, keepdim=True)
    responses = (lengths > 0).sum()
    paper = -derivative(entry, batch) / lengths.clamp(min=1) / responses
    torch.testing.assert_close(ours, paper, **EXACT)


def test_a_wrong_objective_is_noticed() -> None:
    """The comparison has teeth: SPO's derivative is not that of DRPO, GSPO's not that of a product."""
    by_label = {entry.label: entry for entry in ENTRIES}
    for method, other in (("spo", "drpo"), ("gspo", "geo_mean"), ("minirl", "ppo_clip_higher"), ("sat", "ppo_clip")):
        batch = random_batch(0, per_response=True)
        with pytest.raises(AssertionError):
            torch.testing.assert_close(coefficient(method, batch.signals), derivative(by_label[other], batch), **EXACT)
