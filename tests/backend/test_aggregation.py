"""definition and property: each aggregation mode through verl's micro-batching and our registered losses.

The reference is plain torch on the same model: one forward pass, each token's weight written out. Not covered: several
ranks, whose counts verl adds up (tests/backend/test_ray.py).
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from methods.aggregation import MODES

HORIZON = 4  # the tiny setting's response_length, which is loss_scale_factor


def weights(mode: str, mask: Tensor) -> Tensor:
    """What each token's loss is multiplied by, [B, T]; written out from the modes' names."""
    out = torch.zeros(mask.shape)
    sequences, tokens = int(mask.any(-1).sum()), int(mask.sum())
    for i, row in enumerate(mask.tolist()):
        for j, valid in enumerate(row):
            if valid:
                out[i, j] = {
                    "token-mean": 1 / tokens,
                    "token-sum": 1,
                    "seq-mean-token-sum": 1 / sequences,
                    "seq-mean-token-sum-norm": 1 / sequences / HORIZON,
                    "seq-mean-token-mean": 1 / sequences / sum(row),
                }[mode]
    return out


def masks(batch: Any) -> dict[str, Tensor]:
    """whole; every third response and the first eight empty; holes, with a single token left in the first response."""
    whole = torch.arange(int(batch.lengths.max())) < batch.lengths.unsqueeze(1)
    empty, holes = whole.clone(), whole.clone()
    empty[::3] = False
    empty[:8] = False  # two whole micro-batches of four
    holes[torch.rand(whole.shape, generator=torch.Generator().manual_seed(1)) < 0.4] = False
    holes[0] = False
    holes[0, 1] = whole[0, 1]
    return {"whole": whole, "empty rows": empty, "holes": holes}


@pytest.fixture(scope="module")
def reference(engine_batch: Any) -> dict[tuple[str, str], tuple[float, Tensor]]:
    """(mask, mode) -> (loss, gradient) of importance sampling, g = r A."""
    batch = engine_batch
    old, advantages = (batch.columns[name].to_padded_tensor(0.0) for name in ("old_log_probs", "advantages"))
    out = {}
    for name, mask in masks(batch).items():
        for mode in MODES:

            def loss(logp: Tensor, mode: str = mode, mask: Tensor = mask) -> Tensor:
                factor = weights(mode, mask) * (logp.detach() - old).exp() * advantages
                return -(factor * logp)[mask].sum()

            out[name, mode] = batch.differentiate(loss)
    return out


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("micro_batch", [64, 16, 4, None], ids=["whole", "16", "4", "uneven"])
def test_value_and_gradient_are_the_definitions(
    mode: str, micro_batch: int | None, engine_batch: Any, reference: dict[tuple[str, str], tuple[float, Tensor]]
) -> None:
    """field cases 3, 4, 42, 43, 45, 46: the same for every split, whatever is empty."""
    for name, mask in masks(engine_batch).items():
        loss, gradient = engine_batch.gradient("pg_is", mode, micro_batch, mask=mask)
        value, expected = reference[name, mode]
        assert loss == pytest.approx(value, rel=1e-4, abs=1e-6), name
        assert (gradient - expected).norm() < 1e-4 * expected.norm(), name


@pytest.mark.parametrize("mode", MODES)
def test_an_empty_mini_batch_moves_nothing(mode: str, engine_batch: Any) -> None:
    """field case 4: all responses masked, in one piece and in several."""
    nothing = torch.zeros(len(engine_batch.lengths), int(engine_batch.lengths.max()), dtype=torch.bool)
    for micro_batch in (64, 16, None):
        loss, gradient = engine_batch.gradient("dppo_topk_kl", mode, micro_batch, mask=nothing)
        assert loss == 0 and not gradient.any() and all(map(math.isfinite, gradient.tolist()))


@pytest.mark.parametrize("mode", ["seq-mean-token-sum", "seq-mean-token-sum-norm", "seq-mean-token-mean", "token-mean"])
def test_an_empty_response_is_not_there(mode: str, engine_batch: Any) -> None:
    """field cases 42 and 45: the others' loss is as if it had never been sampled."""
    mask = masks(engine_batch)["empty rows"]
    kept = mask.any(-1).nonzero().squeeze(-1).tolist()
    loss, gradient = engine_batch.gradient("ppo_clip_higher", mode, mask=mask)
    alone, expected = engine_batch.gradient("ppo_clip_higher", mode, len(kept), rows=kept)
    assert loss == pytest.approx(alone, rel=1e-5)
    assert (gradient - expected).norm() < 1e-5 * expected.norm()
