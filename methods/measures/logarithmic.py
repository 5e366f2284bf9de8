"""Measures with a logarithm: forward and reverse KL, their sum (Jeffreys) and Jensen-Shannon, all in nats.

A mass that is only a weight contributes nothing where it is zero (0 log 0 = 0). A zero under a logarithm, with more
than a rounding's mass of the other policy above it, puts the two at FAR, which stands for infinity.
"""

from __future__ import annotations

from torch import Tensor

from methods.measures.measure import Measure, far_where_impossible, log_quotient


def _forward_kl(mu: Tensor, pi: Tensor) -> Tensor:
    return far_where_impossible((mu * log_quotient(mu, pi)).sum(-1).clamp(min=0.0), mu, pi)


def _forward_kl_gradient(mu: Tensor, pi: Tensor) -> Tensor:
    return pi - mu


def _reverse_kl(mu: Tensor, pi: Tensor) -> Tensor:
    return far_where_impossible((pi * log_quotient(pi, mu)).sum(-1).clamp(min=0.0), pi, mu)


def _reverse_kl_gradient(mu: Tensor, pi: Tensor) -> Tensor:
    log_ratio = log_quotient(pi, mu)
    return pi * (log_ratio - (pi * log_ratio).sum(-1, keepdim=True))


def _jeffreys(mu: Tensor, pi: Tensor) -> Tensor:
    value = ((pi - mu) * log_quotient(pi, mu)).sum(-1).clamp(min=0.0)
    return far_where_impossible(far_where_impossible(value, pi, mu), mu, pi)


def _jeffreys_gradient(mu: Tensor, pi: Tensor) -> Tensor:
    return _forward_kl_gradient(mu, pi) + _reverse_kl_gradient(mu, pi)


def _js(mu: Tensor, pi: Tensor) -> Tensor:
    middle = (mu + pi) / 2
    terms = mu * log_quotient(mu, middle) + pi * log_quotient(pi, middle)
    return 0.5 * terms.sum(-1).clamp(min=0.0)


def _js_gradient(mu: Tensor, pi: Tensor) -> Tensor:
    return 0.5 * _reverse_kl_gradient((mu + pi) / 2, pi)


FORWARD_KL = Measure("forward_kl", "KL(mu || pi)", _forward_kl, _forward_kl_gradient)
REVERSE_KL = Measure("reverse_kl", "KL(pi || mu)", _reverse_kl, _reverse_kl_gradient, log_of_mu=True)
JEFFREYS = Measure("jeffreys", "KL(mu || pi) + KL(pi || mu)", _jeffreys, _jeffreys_gradient, log_of_mu=True)
JS = Measure("js", "JS(mu, pi)", _js, _js_gradient)
