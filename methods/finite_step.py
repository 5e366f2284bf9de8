"""Finite step: the exact change of the forward KL for a logit step of given size, not its slope [N].

    dD(c) = log sum_i pi_i e^(c u_i) - c sum_i mu_i u_i,   u = e_k - pi,   c = step · A · min(r, C)

Exact on the full vocabulary. On a support the tail is one class that moves by u_T = -c2 / pi_T, with c2 from the same
tail rules as the slope: exact for a tail of one logit (aggregated) and for even tails (uniform, which then is the
change of the full divergence); with `collision` and `none` to first order in c only, since a tail whose ids move apart
is no class. KL is convex in the logits, so dD(c) >= c d: a predicted increase is certain for a lone step, a predicted
decrease may overshoot.

Shapes: B sequences, T response tokens, n tokens or classes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from methods.directions import Tail, require_full, require_support, sampled_slot, tail_rate
from methods.signals import Signals
from methods.support import masses

# Below, log1p and expm1 keep the digits of a small change; above, logsumexp cannot overflow.
SMALL_STEP = 1.0


def finite_change(mu: Tensor, pi: Tensor, move: Tensor, size: Tensor) -> Tensor:
    """dD for pi -> softmax(log pi + c u): mu, pi, move u [..., n], size c [...] to [...], float64."""
    mu, pi = mu.double(), pi.double()
    shift = size.double().unsqueeze(-1) * move.double()
    near = shift.clamp(-SMALL_STEP, SMALL_STEP)
    growth = torch.log1p((pi * torch.expm1(near)).sum(-1))
    far = torch.logsumexp(pi.log() + shift, -1) - pi.sum(-1).log()
    return torch.where(size.abs() <= SMALL_STEP, growth, far) - (mu * shift).sum(-1)


def predicted_change(signals: Signals, size: Tensor, tail: Tail) -> Tensor:
    """dD(c) of each sampled token for c = size, all [B, T].

    Raises ValueError where the signals lack the support, the full distributions, or what a tail rule needs.
    """
    if tail == "full":
        mu, pi, sampled = require_full(signals)
        move = -pi
    else:
        support = require_support(signals)
        classes, sampled = masses(support, signals.vocab_size), sampled_slot(support)
        rate = tail_rate(tail, classes, signals.sum_pi_squared if tail == "collision" else None)
        mu = torch.cat([classes.mu, classes.mu_tail.unsqueeze(-1)], -1)
        pi = torch.cat([classes.pi, classes.pi_tail.unsqueeze(-1)], -1)
        move = -torch.cat([classes.pi, rate.unsqueeze(-1)], -1)
    place = sampled.unsqueeze(-1)
    move = move.scatter_add(-1, place, torch.ones_like(place, dtype=move.dtype))
    return finite_change(mu, pi, move, size).to(size.dtype)
