"""Divergences between mu (rollout) and pi (current), and what a logit step does to them.

Each measure works on the last axis of two probability tensors: the whole vocabulary, or a support with one tail cell.
`logit_gradient` is h_i = dD/dz_i for pi = softmax(z): h_i = pi_i (g_i - sum_j pi_j g_j) with g_i = dD/d pi_i
([N], proved in `derivations`). It is written without dividing by pi, so that a probability of zero is no special case.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from methods.signals import probability

TINY = torch.finfo(torch.float32).tiny


@dataclass(frozen=True)
class Measure:
    """A divergence: `value` and `logit_gradient` map (mu, pi), both [..., n], to [...] and [..., n]."""

    name: str
    title: str
    value: Callable[[Tensor, Tensor], Tensor]
    logit_gradient: Callable[[Tensor, Tensor], Tensor]


def _log_quotient(numerator: Tensor, denominator: Tensor) -> Tensor:
    """log(a/b), with both floored at the smallest normal float32: callers multiply by a zero mass there."""
    return numerator.clamp(min=TINY).log() - denominator.clamp(min=TINY).log()


def _forward_kl(mu: Tensor, pi: Tensor) -> Tensor:
    # mu is a weight (0 log 0 = 0); pi sits under the logarithm, where a zero makes the divergence huge, as it is.
    return (mu * _log_quotient(mu, pi)).sum(-1).clamp(min=0.0)


def _forward_kl_gradient(mu: Tensor, pi: Tensor) -> Tensor:
    return pi - mu


def _reverse_kl(mu: Tensor, pi: Tensor) -> Tensor:
    return (pi * _log_quotient(pi, mu)).sum(-1).clamp(min=0.0)


def _reverse_kl_gradient(mu: Tensor, pi: Tensor) -> Tensor:
    log_quotient = _log_quotient(pi, mu)
    return pi * (log_quotient - (pi * log_quotient).sum(-1, keepdim=True))


def _tv(mu: Tensor, pi: Tensor) -> Tensor:
    return 0.5 * (mu - pi).abs().sum(-1)


def _tv_gradient(mu: Tensor, pi: Tensor) -> Tensor:
    sign = torch.sign(pi - mu)
    return 0.5 * pi * (sign - (pi * sign).sum(-1, keepdim=True))


FORWARD_KL = Measure("forward_kl", "KL(mu || pi)", _forward_kl, _forward_kl_gradient)
REVERSE_KL = Measure("reverse_kl", "KL(pi || mu)", _reverse_kl, _reverse_kl_gradient)
TV = Measure("tv", "TV(mu, pi)", _tv, _tv_gradient)

MEASURES = {measure.name: measure for measure in (FORWARD_KL, REVERSE_KL, TV)}


def reduced_value(measure: Measure, mu: Tensor, pi: Tensor, mu_tail: Tensor, pi_tail: Tensor) -> Tensor:
    """The measure on a support plus one tail cell: [..., S] masses and [...] tails to [...].

    Source: DPPO paper, Eqs. 15 (TV) and 16 (forward KL) [F]; a lower bound of the divergence on the full vocabulary.
    """
    return measure.value(torch.cat([mu, mu_tail.unsqueeze(-1)], -1), torch.cat([pi, pi_tail.unsqueeze(-1)], -1))


def binary_tv(logp_mu: Tensor, logp_pi: Tensor) -> Tensor:
    """|mu_k - pi_k| of the sampled token, shape of the inputs (DPPO paper, Eq. 13 [F])."""
    return (probability(logp_mu) - probability(logp_pi)).abs()


def binary_kl(logp_mu: Tensor, logp_pi: Tensor) -> Tensor:
    """KL of Bernoulli(mu_k) against Bernoulli(pi_k), in nats, shape of the inputs (DPPO paper, Eq. 14 [F]).

    Accurate for rare and for near-certain tokens; inf where pi_k = 0 < mu_k, finite everywhere else.
    """
    mu = probability(logp_mu)
    log_mu, log_pi = _log(logp_mu), _log(logp_pi)
    rest_mu, rest_pi = _log_rest(log_mu), _log_rest(log_pi)
    token = torch.where(mu > 0, mu * (log_mu - log_pi), 0.0)
    return (token + rest_mu.exp() * (rest_mu - rest_pi)).clamp(min=0.0)


def _log(logp: Tensor) -> Tensor:
    return logp.to(torch.promote_types(logp.dtype, torch.float32)).clamp(max=0.0)


def _log_rest(logp: Tensor) -> Tensor:
    """log(1 - p): 1 - p is exact as -expm1(log p), its logarithm as log1p(-p) where p is small.

    A rest that rounds to zero is floored like a tail: log-probs of near-certain tokens are often exactly 0.
    """
    rest = (-torch.expm1(logp)).clamp(min=TINY)
    return torch.where(logp < -math.log(2.0), torch.log1p(-logp.exp()), rest.log())
