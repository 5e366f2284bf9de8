"""Measures without a logarithm: total variation, squared Hellinger, the two chi-squared, half the squared l2 distance.

Every value is a sum of terms >= 0 that vanish one by one where mu = pi, so nearly equal policies lose no digits. The
denominators of the chi-squared are floored at the smallest normal float32: mass against none is huge, not infinite.
"""

from __future__ import annotations

import torch
from torch import Tensor

from methods.measures.measure import MASS_ROUNDINGS, TINY, Measure, centred


def _tv(mu: Tensor, pi: Tensor) -> Tensor:
    return 0.5 * (mu - pi).abs().sum(-1)


def _tv_gradient(mu: Tensor, pi: Tensor) -> Tensor:
    # Masses that differ by rounding alone are equal: their sign would be noise of size one.
    level = (pi - mu).abs() <= MASS_ROUNDINGS * torch.finfo(pi.dtype).eps * (pi + mu)
    sign = torch.where(level, 0.0, torch.sign(pi - mu))
    return 0.5 * pi * (sign - (pi * sign).sum(-1, keepdim=True))


def _hellinger2(mu: Tensor, pi: Tensor) -> Tensor:
    return 0.5 * (pi.sqrt() - mu.sqrt()).square().sum(-1)


def _hellinger2_gradient(mu: Tensor, pi: Tensor) -> Tensor:
    return centred(0.5 * pi.sqrt() * (pi.sqrt() - mu.sqrt()), pi)


def _chi2_pearson(mu: Tensor, pi: Tensor) -> Tensor:
    # A quotient before a product: the square of a small difference would underflow.
    return ((pi - mu) * ((pi - mu) / mu.clamp(min=TINY))).sum(-1)


def _chi2_pearson_gradient(mu: Tensor, pi: Tensor) -> Tensor:
    excess = (pi - mu) / mu.clamp(min=TINY)
    return 2 * pi * (excess - (pi * excess).sum(-1, keepdim=True))


def _chi2_neyman(mu: Tensor, pi: Tensor) -> Tensor:
    return ((pi - mu) * ((pi - mu) / pi.clamp(min=TINY))).sum(-1)


def _chi2_neyman_gradient(mu: Tensor, pi: Tensor) -> Tensor:
    # pi g with g = 1 - (mu/pi)^2.
    return centred((pi - mu) * ((pi + mu) / pi.clamp(min=TINY)), pi)


def _l2(mu: Tensor, pi: Tensor) -> Tensor:
    return 0.5 * (pi - mu).square().sum(-1)


def _l2_gradient(mu: Tensor, pi: Tensor) -> Tensor:
    return centred(pi * (pi - mu), pi)


TV = Measure("tv", "TV(mu, pi)", _tv, _tv_gradient, kinked=True)
HELLINGER2 = Measure("hellinger2", "1 - sum sqrt(mu pi)", _hellinger2, _hellinger2_gradient)
CHI2_PEARSON = Measure("chi2_pearson", "sum (pi - mu)^2 / mu", _chi2_pearson, _chi2_pearson_gradient, divides=True)
CHI2_NEYMAN = Measure("chi2_neyman", "sum (pi - mu)^2 / pi", _chi2_neyman, _chi2_neyman_gradient, divides=True)
L2 = Measure("l2", "half the squared l2 distance", _l2, _l2_gradient)
