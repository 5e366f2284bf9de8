"""Measures with a logarithm: forward and reverse KL, their sum (Jeffreys) and Jensen-Shannon, all in nats.

A mass that is only a weight contributes nothing where it is zero (0 log 0 = 0). A zero under a logarithm, with mass of
the other policy above it, makes the divergence huge instead of infinite: both KL count such a mass with a log-quotient
of about 87, the logarithm of the smallest normal float32.
"""

from __future__ import annotations

from torch import Tensor

from methods.measures.measure import Measure, log_quotient


def _forward_kl(mu: Tensor, pi: Tensor) -> Tensor:
    return (mu * log_quotient(mu, pi)).sum(-1).clamp(min=0.0)


def _forward_kl_gradient(mu: Tensor, pi: Tensor) -> Tensor:
    return pi - mu


def _reverse_kl(mu: Tensor, pi: Tensor) -> Tensor:
    return (pi * log_quotient(pi, mu)).sum(-1).clamp(min=0.0)


def _reverse_kl_gradient(mu: Tensor, pi: Tensor) -> Tensor:
    log_ratio = log_quotient(pi, mu)
    return pi * (log_ratio - (pi * log_ratio).sum(-1, keepdim=True))


def _jeffreys(mu: Tensor, pi: Tensor) -> Tensor:
    return ((pi - mu) * log_quotient(pi, mu)).sum(-1).clamp(min=0.0)


def _jeffreys_gradient(mu: Tensor, pi: Tensor) -> Tensor:
    return _forward_kl_gradient(mu, pi) + _reverse_kl_gradient(mu, pi)


def _js(mu: Tensor, pi: Tensor) -> Tensor:
    middle = (mu + pi) / 2
    terms = mu * log_quotient(mu, middle) + pi * log_quotient(pi, middle)
    return 0.5 * terms.sum(-1).clamp(min=0.0)


def _js_gradient(mu: Tensor, pi: Tensor) -> Tensor:
    return 0.5 * _reverse_kl_gradient((mu + pi) / 2, pi)


FORWARD_KL = Measure("forward_kl", "KL(mu || pi)", _forward_kl, _forward_kl_gradient)
REVERSE_KL = Measure("reverse_kl", "KL(pi || mu)", _reverse_kl, _reverse_kl_gradient)
JEFFREYS = Measure("jeffreys", "KL(mu || pi) + KL(pi || mu)", _jeffreys, _jeffreys_gradient)
JS = Measure("js", "JS(mu, pi)", _js, _js_gradient)
