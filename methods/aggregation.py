"""From per-token losses to one number, in verl's modes: selection first, then sums, so that nothing masked leaks.

Shapes: B sequences, T response tokens. Same values as verl 0.9.1 `agg_loss` on clean input. It differs where that
function goes wrong: its sequence modes multiply by the mask (NaN under the mask spreads), and without global counts
an all-masked batch gives 0/0.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor

from methods.signals import as_mask

Mode = Literal["token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-sum-norm", "seq-mean-token-mean"]
MODES: tuple[Mode, ...] = get_args(Mode)

Count: TypeAlias = int | float | Tensor


def token_losses(coefficient: Tensor, log_prob: Tensor) -> Tensor:
    """-g log pi of each token, the loss whose gradient is a method's; shape of the inputs, differentiable in log pi.

    A token without gradient adds exactly 0: its log-prob may be -inf, and 0 * inf is NaN. So does one that pi holds
    impossible, the limit of r log r: no step moves it, and inf would hide every other token.
    Raises ValueError where the shapes differ: a product would broadcast.
    """
    if coefficient.shape != log_prob.shape:
        raise ValueError(
            f"coefficient of shape {tuple(coefficient.shape)}: allowed is that of log pi, {tuple(log_prob.shape)}"
        )
    counts = (coefficient != 0) & (log_prob != -torch.inf)
    return -coefficient * torch.where(counts, log_prob, 0.0)


def counts(mask: Tensor) -> tuple[Tensor, Tensor]:
    """(valid tokens, rows with at least one) of a [B, T] mask: add them up over micro-batches and ranks."""
    tokens = as_mask("mask", mask).sum(-1)
    return tokens.sum(), (tokens > 0).sum()


def aggregate(
    losses: Tensor,
    mask: Tensor,
    mode: str,
    *,
    dp_size: int = 1,
    batch_num_tokens: Count | None = None,
    global_batch_size: Count | None = None,
    loss_scale_factor: float | None = None,
) -> Tensor:
    """Scalar loss of a micro-batch, float32 or better, such that the sum over micro-batches is the batch's loss.

    losses, mask: [B, T]. batch_num_tokens, global_batch_size: valid tokens and sequences of the whole batch over all
    ranks; by default those of this call, where an empty row is no sequence. dp_size: ranks whose gradients get
    averaged. loss_scale_factor: the horizon of `seq-mean-token-sum-norm`, by default T.
    An all-masked call gives 0 that still hangs on the graph, with gradient 0.
    Raises ValueError for an unknown mode, a mask of another shape or of other values than 0 and 1, a scale that is not
    positive, or dp_size > 1 without the global count.
    """
    if losses.shape != mask.shape:
        raise ValueError(f"mask of shape {tuple(mask.shape)}: allowed is that of the losses, {tuple(losses.shape)}")
    if mode not in MODES:
        raise ValueError(f"aggregation mode = {mode!r}: allowed are {', '.join(MODES)}")
    mask = as_mask("mask", mask)
    dtype = torch.promote_types(losses.dtype, torch.float32)
    rows = torch.where(mask, losses.to(dtype), 0.0).sum(-1)
    tokens, sequences = counts(mask)
    if mode == "token-sum":
        return rows.sum() * dp_size
    if mode == "token-mean":
        return rows.sum() / _count("batch_num_tokens", batch_num_tokens, tokens, dp_size) * dp_size
    if mode == "seq-mean-token-mean":
        rows = rows / mask.sum(-1).clamp(min=1)
    if mode == "seq-mean-token-sum-norm":
        rows = rows / _horizon(loss_scale_factor, mask.shape[-1])
    return rows.sum() / _count("global_batch_size", global_batch_size, sequences, dp_size) * dp_size


def _count(name: str, given: Count | None, own: Tensor, dp_size: int) -> Tensor:
    """The divisor: the global count where given, else this call's; an empty batch divides its zero by one."""
    if given is None and dp_size > 1:
        raise ValueError(f"{name} is missing: with dp_size = {dp_size} the mean needs the count over all ranks")
    return torch.as_tensor(own if given is None else given, device=own.device).clamp(min=1)


def _horizon(given: float | None, width: int) -> float:
    if given is None:
        return max(width, 1)
    if not given > 0:
        raise ValueError(f"loss_scale_factor = {given!r}: allowed is a number > 0")
    return given
