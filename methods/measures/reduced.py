"""A measure on a support plus one tail class: a lower bound of the divergence on the full vocabulary."""

from __future__ import annotations

import torch
from torch import Tensor

from methods.measures.measure import Measure

# A tail is one minus a sum of some twenty masses, each off by about one rounding.
TAIL_ROUNDINGS = 8


def reduced_classes(
    measure: Measure, mu: Tensor, pi: Tensor, mu_tail: Tensor, pi_tail: Tensor
) -> tuple[Tensor, Tensor]:
    """(mu, pi) with the tail as last class: [..., S] masses and [...] tails to [..., S + 1].

    Where a measure divides by a mass, both tails are raised to what the sum's rounding can be: a tail below that is
    no information, and 0 against 6e-8 would put a token at any distance. Where its slope jumps at equality, tails that
    differ by no more than that are equal. A softmax leaves no tail empty, so an empty one of pi is taken for what the
    rounding can hide, up to that of mu; and one of mu, where the measure takes the logarithm of mu.
    Raises ValueError for other shapes: they would be broadcast.
    """
    if mu.shape != pi.shape or mu_tail.shape != mu.shape[:-1] or pi_tail.shape != mu.shape[:-1]:
        raise ValueError(
            f"mu, pi, mu_tail, pi_tail of shapes {tuple(mu.shape)}, {tuple(pi.shape)}, {tuple(mu_tail.shape)}, "
            f"{tuple(pi_tail.shape)}: allowed are [..., S] twice and [...] twice"
        )
    floor = TAIL_ROUNDINGS * torch.finfo(mu.dtype).eps
    filled = torch.where(pi_tail == 0, mu_tail.clamp(max=floor), pi_tail)
    if measure.log_of_mu:
        mu_tail = torch.where(mu_tail == 0, pi_tail.clamp(max=floor), mu_tail)
    pi_tail = filled
    if measure.divides:
        mu_tail, pi_tail = mu_tail.clamp(min=floor), pi_tail.clamp(min=floor)
    if measure.kinked:
        level = (pi_tail - mu_tail).abs() <= floor
        pi_tail = torch.where(level, mu_tail, pi_tail)
    return torch.cat([mu, mu_tail.unsqueeze(-1)], -1), torch.cat([pi, pi_tail.unsqueeze(-1)], -1)


def reduced_value(measure: Measure, mu: Tensor, pi: Tensor, mu_tail: Tensor, pi_tail: Tensor) -> Tensor:
    """The measure on a support plus one tail class: [..., S] masses and [...] tails to [...].

    Source: DPPO paper, Eqs. 15 (TV) and 16 (forward KL) [F]. A lower bound of the divergence on the full vocabulary
    for every measure here: pooling classes lowers an f-divergence. The l2 distance is none: its tail may exceed the
    full sum (two tail ids that both gain 0.1 are 0.04/2 pooled and 0.02/2 apart) [N].
    """
    return measure.value(*reduced_classes(measure, mu, pi, mu_tail, pi_tail))
