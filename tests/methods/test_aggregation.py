"""Claim: each aggregation mode is the mean or sum it names, over the valid tokens and rows only.

Values equal a plain-Python definition; that they equal verl's own function is the claim of tests/agreement.
"""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from methods.aggregation import MODES, aggregate, counts, token_losses
from tests.methods import reference
from tests.methods.helpers import properties, tensor

every_mode = pytest.mark.parametrize("mode", MODES)
SHAPES = st.tuples(st.integers(1, 4), st.integers(1, 5))


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[list[float]], list[list[int]]]:
    """Losses with garbage at some masked places, and a mask that may leave rows or everything empty."""
    rows, width = draw(SHAPES)
    mask = [[draw(st.integers(0, 1)) for _ in range(width)] for _ in range(rows)]
    garbage = st.sampled_from([math.nan, math.inf, -math.inf, 9.0])
    losses = [[draw(st.floats(-5, 5) if keep else garbage) for keep in row] for row in mask]
    return losses, mask


@every_mode
@properties
@given(batch=batches(), horizon=st.sampled_from([None, 1, 7.5]))
def test_value_equals_the_definition(mode: str, batch, horizon: float | None) -> None:
    losses, mask = batch
    got = aggregate(tensor(losses), torch.tensor(mask), mode, loss_scale_factor=horizon).item()
    assert math.isclose(got, reference.aggregate(losses, mask, mode, horizon), rel_tol=1e-12, abs_tol=1e-12)


@pytest.mark.parametrize(
    ("mode", "want"),
    [
        ("token-mean", 2.5),
        ("token-sum", 10.0),
        ("seq-mean-token-sum", 5.0),
        ("seq-mean-token-sum-norm", 1.25),
        ("seq-mean-token-mean", 3.0),
    ],
)
@pytest.mark.parametrize("garbage", [0.0, math.nan, math.inf])
def test_field_case_3(mode: str, want: float, garbage: float) -> None:
    losses = tensor([[1, 2, 3, garbage], [4, garbage, 9, 9], [garbage] * 4])
    mask = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]])
    assert aggregate(losses, mask, mode).item() == want


@every_mode
def test_an_empty_batch_is_a_zero_that_hangs_on_the_graph(mode: str) -> None:
    losses = tensor([[1.0, math.nan], [math.inf, 2.0]]).requires_grad_()
    loss = aggregate(losses, torch.zeros(2, 2), mode)
    loss.backward()
    assert loss.item() == 0 and loss.requires_grad
    assert torch.equal(losses.grad, torch.zeros(2, 2, dtype=torch.float64))


@every_mode
def test_gradients_stop_at_the_mask(mode: str) -> None:
    """Valid tokens get a finite gradient whatever stands beside them, masked ones exactly zero."""
    mask = torch.tensor([[1, 0, 1], [0, 0, 0]])
    losses = torch.where(mask.bool(), 1.0, torch.nan).requires_grad_()
    aggregate(losses, mask, mode).backward()
    assert (losses.grad[mask.bool()] > 0).all() and (losses.grad[~mask.bool()] == 0).all()


@every_mode
@properties
@given(batch=batches(), cut=st.integers(0, 4), ranks=st.sampled_from([1, 2]))
def test_parts_with_global_counts_add_up(mode: str, batch, cut: int, ranks: int) -> None:
    """Micro-batches on one rank add up; with two ranks the mean over ranks, which the framework takes, is the whole.

    A part may be empty: it adds nothing.
    """
    losses, mask = tensor(batch[0]), torch.tensor(batch[1])
    parts = [(losses[:cut], mask[:cut]), (losses[cut:], mask[cut:])]
    tokens, sequences = counts(mask)
    total = sum(
        aggregate(x, m, mode, dp_size=ranks, batch_num_tokens=tokens, global_batch_size=sequences, loss_scale_factor=3)
        for x, m in parts
    )
    whole = aggregate(losses, mask, mode, loss_scale_factor=3)
    torch.testing.assert_close(total / ranks, whole, rtol=1e-12, atol=1e-12)


def test_given_counts_are_used_as_they_are() -> None:
    """verl's global_batch_size counts every sequence, empty ones too, so it is the caller's number that divides."""
    losses, mask = tensor([[2.0, 4.0], [0.0, 0.0]]), torch.tensor([[1, 1], [0, 0]])
    assert aggregate(losses, mask, "token-mean", batch_num_tokens=4).item() == 1.5
    assert aggregate(losses, mask, "seq-mean-token-sum", global_batch_size=2).item() == 3.0
    assert aggregate(losses, mask, "seq-mean-token-mean", global_batch_size=2, dp_size=2).item() == 3.0
    assert aggregate(losses, mask, "seq-mean-token-sum-norm", global_batch_size=1, loss_scale_factor=3).item() == 2.0
    assert aggregate(losses, mask, "token-sum", dp_size=2).item() == 12.0
    assert aggregate(losses, mask, "token-mean", batch_num_tokens=torch.tensor(3)).item() == 2.0


def test_counts() -> None:
    tokens, sequences = counts(torch.tensor([[1, 1, 0], [0, 0, 0], [0, 0, 1]]))
    assert (tokens.item(), sequences.item()) == (3, 2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sums_are_float32_or_better(dtype: torch.dtype) -> None:
    """4,096 ones: a bfloat16 running sum stops at 256."""
    loss = aggregate(torch.ones(1, 4096, dtype=dtype), torch.ones(1, 4096), "token-sum")
    assert loss.dtype == torch.float32 and loss.item() == 4096


def test_refusals() -> None:
    losses, mask = torch.ones(1, 2), torch.ones(1, 2)
    with pytest.raises(ValueError, match="mode = 'mean'.*token-mean, token-sum"):
        aggregate(losses, mask, "mean")
    with pytest.raises(ValueError, match="batch_num_tokens is missing.*dp_size = 2"):
        aggregate(losses, mask, "token-mean", dp_size=2)
    for mode in ("seq-mean-token-sum", "seq-mean-token-sum-norm", "seq-mean-token-mean"):
        with pytest.raises(ValueError, match="global_batch_size is missing.*dp_size = 2"):
            aggregate(losses, mask, mode, dp_size=2)
    for horizon in (0, -1, math.nan):
        with pytest.raises(ValueError, match="loss_scale_factor = "):
            aggregate(losses, mask, "seq-mean-token-sum-norm", loss_scale_factor=horizon)


def test_a_mask_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"mask of shape \(1, 2\): allowed is that of the losses, \(2, 2\)"):
        aggregate(torch.ones(2, 2), torch.ones(1, 2), "token-mean")


def test_an_impossible_token_adds_nothing() -> None:
    """r log r goes to 0 with r: -inf in log pi makes neither the loss nor another token's gradient infinite."""
    log_prob = torch.tensor([[-torch.inf, -1.0]], requires_grad=True)
    losses = token_losses(torch.tensor([[2e-9, 0.5]]), log_prob)
    losses.sum().backward()
    assert losses.tolist() == [[0.0, 0.5]] and log_prob.grad.tolist() == [[0.0, -0.5]]


@pytest.mark.parametrize("value", [0.5, -1.0, 2.0, math.nan])
def test_a_mask_of_other_values_is_refused(value: float) -> None:
    """A weight is no mask; advantages, a mask and losses in each other's place are found by it."""
    losses, mask = torch.ones(2, 2), torch.ones(2, 2)
    mask[1, 0] = value
    for call in (lambda: aggregate(losses, mask, "token-mean"), lambda: counts(mask)):
        with pytest.raises(ValueError, match=rf"^mask\[1, 0\] = {value}: allowed are 0 and 1"):
            call()


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.uint8, torch.float32, torch.bfloat16])
def test_a_mask_of_any_dtype_is_one(dtype: torch.dtype) -> None:
    mask = torch.tensor([[1, 1, 0]]).to(dtype)
    assert aggregate(torch.tensor([[1.0, 3.0, math.nan]]), mask, "token-mean").item() == 2


def test_a_coefficient_of_another_shape_is_refused() -> None:
    log_prob = torch.zeros(2, 3)
    for wrong in (torch.ones(2, 1), torch.ones(1, 3), torch.ones(3), torch.tensor(1.0)):
        with pytest.raises(ValueError, match=r"coefficient of shape .*: allowed is that of log pi, \(2, 3\)"):
            token_losses(wrong, log_prob)
