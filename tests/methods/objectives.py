"""The papers' objectives once more, as functions of log pi that autograd differentiates.

Nothing here uses a formula of `methods`. What a paper puts under a stop-gradient is computed outside the function that
is differentiated, so that numerical and automatic derivatives mean the same. Sequence objectives are multiplied with
the length of the response, which is what aggregation seq-mean-token-mean divides by.
Sources: the docstrings of `methods.catalogue`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tests.methods import reference
from tests.methods.batches import Data

Objective = Callable[[Tensor], Tensor]


def surrogate(d: Data, r: Tensor, low: Any, high: Any) -> Tensor:
    """min(r A, clip(r, low, high) A); low and high: numbers or tensors."""
    ends = [torch.as_tensor(end, dtype=r.dtype).expand_as(r) for end in (low, high)]
    return torch.minimum(r * d.A, torch.maximum(torch.minimum(r, ends[1]), ends[0]) * d.A)


def weighted(d: Data, weight: Tensor) -> Objective:
    """sg[weight] A log pi."""
    return lambda x: d.total(weight * d.A * x)


def masked(d: Data, keep: Tensor) -> Objective:
    """sg[keep] r A."""
    return lambda x: d.total(keep * x.exp() / d.mu * d.A)


def clip_keep(d: Data, r: Tensor, low: float, high: float) -> Tensor:
    """1 where PPO's surrogate has a slope: below the upper end for A > 0, above the lower one for A < 0."""
    return torch.where(d.A > 0, r <= 1 + high, torch.where(d.A < 0, r >= 1 - low, True)).double()


def pg_is(d: Data) -> Objective:
    return weighted(d, d.r)


def pg_tis(d: Data, cap: float = 5.0) -> Objective:
    return weighted(d, d.r.clip(max=cap))


def cispo(d: Data, low: float = 1.0, high: float = 4.0) -> Objective:
    return weighted(d, d.r.clip(1 - low, 1 + high))


def ppo(d: Data, low: float = 0.2, high: float = 0.2) -> Objective:
    return lambda x: d.total(surrogate(d, x.exp() / d.mu, 1 - low, 1 + high))


def dual(d: Data, c: float) -> Objective:
    def value(x: Tensor) -> Tensor:
        plain = surrogate(d, x.exp() / d.mu, 0.8, 1.2)
        return d.total(torch.where(d.A < 0, torch.maximum(plain, c * d.A), plain))

    return value


def clip_higher(d: Data) -> Objective:
    return weighted(d, clip_keep(d, d.r, 0.2, 0.28) * d.r.clip(max=5.0))


def minirl(d: Data, low: float = 0.2, high: float = 0.28, cap: float = 1e9) -> Objective:
    return weighted(d, clip_keep(d, d.pi / d.old, low, high) * d.r.clip(max=cap))


def spo(d: Data, eps: float = 12.5) -> Objective:
    def value(x: Tensor) -> Tensor:
        r = x.exp() / d.mu
        return d.total(r * d.A - d.A.abs() / (2 * eps) * (r - 1) ** 2)

    return value


def gspo(d: Data, low: float = 3e-4, high: float = 4e-4) -> Objective:
    def value(x: Tensor) -> Tensor:
        total = x.new_zeros(())
        for b in range(len(x)):
            valid = d.mask[b]
            n = int(valid.sum())
            if n:
                s = (x[b][valid].exp() / d.mu[b][valid]).prod() ** (1 / n)
                a = d.A[b, 0]
                total = total + n * torch.minimum(s * a, s.clip(1 - low, 1 + high) * a)
        return total

    return value


def geo_mean(d: Data, low: float = 0.4, high: float = 0.4) -> Objective:
    def value(x: Tensor) -> Tensor:
        total = x.new_zeros(())
        for b in range(len(x)):
            valid = d.mask[b]
            n = int(valid.sum())
            if n:
                r, a = x[b][valid].exp() / d.mu[b][valid], d.A[b, 0]
                ends = torch.tensor([-low, high], dtype=r.dtype).exp()
                factors = torch.minimum(r, ends[1]) if a > 0 else torch.maximum(r, ends[0])
                total = total + n * a * factors.prod() ** (1 / n)
        return total

    return value


def sapo(d: Data, pos: float = 1.0, neg: float = 1.05) -> Objective:
    def value(x: Tensor) -> Tensor:
        tau = torch.where(d.A > 0, pos, neg * torch.ones_like(d.A))
        return d.total(4 / tau / (1 + (-tau * (x.exp() / d.mu - 1)).exp()) * d.A)

    return value


def dro(d: Data, beta: float = 0.05) -> Objective:
    return lambda x: d.total(x * d.A - beta / 2 * (x - d.mu.log()) ** 2)


def rho(d: Data, level: str) -> Tensor:
    """pi_old / mu of a token, a response, or a response's geometric mean."""
    quotient = torch.where(d.mask, d.old / d.mu, 1.0)
    if level == "token":
        return quotient
    whole = quotient.prod(-1, keepdim=True)
    return (whole if level == "sequence" else whole ** (1 / d.lengths().unsqueeze(-1))).expand_as(d.mu)


def anchored(d: Data, weight: Tensor, low: float = 0.2, high: float = 0.2) -> Objective:
    return lambda x: d.total(weight * surrogate(d, x.exp() / d.old, 1 - low, 1 + high))


def tis(d: Data, level: str = "token", upper: float = 2.0) -> Objective:
    return anchored(d, rho(d, level).clip(max=upper))


def mis(d: Data, level: str = "token", lower: float = 0.0, upper: float = 2.0) -> Objective:
    weight = rho(d, level)
    return anchored(d, weight * ((weight >= lower) & (weight <= upper)))


def trm(d: Data, distance: Tensor, delta: float, mean: bool) -> Objective:
    valid = torch.where(d.mask, distance, 0.0)
    statistic = valid.sum(-1) / d.lengths() if mean else valid.max(-1).values
    return masked(d, (statistic <= delta).double().unsqueeze(-1).expand_as(d.mu))


def trm_mean(d: Data, delta: float = 0.002) -> Objective:
    return trm(d, d.r - 1 - d.r.log(), delta, mean=True)


def trm_max(d: Data, delta: float = 0.1) -> Objective:
    return trm(d, d.per_token(reference.topk_kl), delta, mean=False)


def trm_max_sampled(d: Data, delta: float) -> Objective:
    return trm(d, d.r.log().abs(), delta, mean=False)


def cppo(d: Data, distance: Tensor, delta: float, last: float, budget: Callable[[Tensor], float]) -> Objective:
    """One token after the other, as the paper's algorithm is written."""
    keep = torch.ones_like(d.mu)
    for b in range(len(d.mu)):
        places = d.mask[b].nonzero().flatten().tolist()
        if not places:
            continue
        allowance = budget(distance[b][d.mask[b]])
        spent, weights = 0.0, 0.0
        for i, t in enumerate(places):
            w = 1 - (1 - last) * (i / (len(places) - 1) if len(places) > 1 else 0)
            z = w * distance[b, t].item()
            limit = min(delta, delta + allowance * weights - spent)
            if d.A[b, t] * (d.r[b, t] - 1) > 0 and z > limit:
                keep[b, t] = 0
            spent, weights = spent + z, weights + w
    return masked(d, keep)


def cppo_adaptive(d: Data, distance: Tensor, delta: float = 0.15, scale: float = 0.02) -> Objective:
    def budget(row: Tensor) -> float:
        return min(max(torch.quantile(row, 0.9).item(), scale), 2 * scale)

    return cppo(d, distance, delta, 0.8, budget)


def ripo(d: Data, delta: float = 0.05, lowest: float = 0.5, highest: float = 10.0) -> Objective:
    width = (delta / d.mu) ** 0.5
    low, high = (1 - width).clip(min=lowest), (1 + width).clip(max=highest)
    return lambda x: d.total(surrogate(d, x.exp() / d.mu, low, high))


def sat(d: Data, low: float = 0.2, high: float = 0.28, share: float = 0.9, n: float = 2.0) -> Objective:
    u = d.r.log().abs()
    q = torch.quantile(u[d.mask], share)
    h = torch.where(u > q, 1 / (1 + ((u - q) / q).clip(min=0) ** n), 1.0)
    return lambda x: d.total(surrogate(d, x.exp() / d.mu, 1 - low * h, 1 + high * h))


def negative(d: Data, threshold: float = 0.5) -> Objective:
    return masked(d, 1 - ((d.A < 0) & (d.mu - d.pi >= threshold)).double())


def relaxed(d: Data, alpha: float = 0.1, sides: str = "both") -> Objective:
    keep = clip_keep(d, d.r, 0.2, 0.28)
    for sign, side in ((1, "high"), (-1, "low")):
        if sides in (side, "both"):
            keep = torch.where((d.mu < alpha) & (torch.sign(d.A) == sign), 1.0, keep)
    return weighted(d, keep * d.r.clip(max=5.0))


def drpo(d: Data, delta: float = 12.5, size: Tensor | None = None, where: Tensor | None = None) -> Objective:
    size = d.A.abs() if size is None else size
    where = torch.ones_like(d.mu) if where is None else where

    def value(x: Tensor) -> Tensor:
        r = x.exp() / d.mu
        return d.total(r * d.A - where * size / (2 * delta) * d.mu * (r - 1) ** 2)

    return value


def mask_drpo(d: Data, delta: float = 12.5, radius: float = 0.15) -> Objective:
    return drpo(d, delta, where=((d.pi - d.mu).abs() > radius).double())


def predictive_drpo(d: Data, direction: Callable[[reference.Token], float], delta: float = 0.15) -> Objective:
    sign = torch.sign(d.per_token(direction)) * torch.sign(d.r - 1)
    return drpo(d, delta, where=sign)


def penalty(d: Data, pen: Callable[[Tensor], Tensor], coefficient: float = 0.04, unweighted: bool = False) -> Objective:
    strength = coefficient * (torch.ones_like(d.A) if unweighted else d.A.abs())

    def value(x: Tensor) -> Tensor:
        r = x.exp() / d.mu
        return d.total(r * d.A - strength * pen(r))

    return value


def shift(d: Data) -> Tensor:
    """|pi - mu| of the sampled token."""
    return (d.pi - d.mu).abs()
