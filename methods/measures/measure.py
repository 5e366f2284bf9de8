"""What a measure is: a value and its gradient in the logits of pi.

Shapes: n tokens or classes on the last axis. `logit_gradient` is h_i = dD/dz_i for pi = softmax(z):
h_i = pi_i (g_i - sum_j pi_j g_j) with g_i = dD/d pi_i (papers' general formula [N], proved in `derivations`).
The products pi_i g_i are written out measure by measure, so that a probability of zero is no special case.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

# Smallest normal float32: a floor under quotients, above which float32 keeps its precision.
TINY = torch.finfo(torch.float32).tiny
# A mass below this many roundings of one may be what a sum left over.
MASS_ROUNDINGS = 8
# Stands for an infinite divergence: above any radius, and sums of many stay finite.
FAR = 1e6


@dataclass(frozen=True)
class Measure:
    """A divergence: `value` and `logit_gradient` map (mu, pi), both [..., n], to [...] and [..., n].

    divides: the value has a quotient of masses in it, so that a mass of pure rounding may not stand below. kinked: its
    slope jumps where masses are equal, so that a difference of pure rounding may not decide. log_of_mu: mu stands under
    a logarithm that something else weighs.
    """

    name: str
    title: str
    value: Callable[[Tensor, Tensor], Tensor]
    logit_gradient: Callable[[Tensor, Tensor], Tensor]
    divides: bool = False
    kinked: bool = False
    log_of_mu: bool = False


def log_quotient(numerator: Tensor, denominator: Tensor) -> Tensor:
    """log(a/b), with both floored at the dtype's smallest normal number: callers multiply by a zero mass there."""
    tiny = torch.finfo(numerator.dtype).tiny
    return numerator.clamp(min=tiny).log() - denominator.clamp(min=tiny).log()


def far_where_impossible(value: Tensor, weight: Tensor, mass: Tensor) -> Tensor:
    """At least FAR where a token of real weight has no mass at all, else value: [...], weight and mass [..., n]."""
    impossible = (mass == 0) & (weight > MASS_ROUNDINGS * torch.finfo(weight.dtype).eps)
    return torch.where(impossible.any(-1), value.clamp(min=FAR), value)


def centred(slopes: Tensor, pi: Tensor) -> Tensor:
    """h out of the products pi_i g_i, [..., n]."""
    return slopes - pi * slopes.sum(-1, keepdim=True)
