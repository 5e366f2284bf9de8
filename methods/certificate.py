"""Certified direction: an interval that contains the full-vocabulary direction, out of what a top-K row gives [N].

Shapes: B sequences, T response tokens, S support slots; m retained of n ids, T the tail. Where the interval excludes
zero the sign is certain; elsewhere a named fall-back decides. For the forward KL, with R the local and retained part,

    R - pi_T^2  <=  d  <=  R + pi_T min(mu_(K), mu_T) - pi_T^2 / (n - m)

and mostly closer above (at most R + mu_T min(mu_(K), mu_T) / 4): no uneven tail has its largest sum pi_j mu_j and its
smallest sum pi_j^2 at once. mu_(K), the least likely *candidate*, bounds every unseen mu_j. The least likely *retained*
id does not: a sampled token that joined from outside the top K may be rarer than the tail. The interval is about the
full vocabulary, so it is taken from all that was carried, whatever support rule the mask itself uses.
sum pi^2, where known, pins the tail's collision mass c2, else between pi_T^2 / (n - m) and pi_T^2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from methods.directions import TAIL_RULES, predictive_direction, ratio_direction, require_support, sampled_slot
from methods.intervals import Interval
from methods.measures import FORWARD_KL, HELLINGER2, L2, TV, Measure
from methods.signals import Signals
from methods.support import SupportRule, with_support_rule

FALLBACKS = ("keep", "ratio", *TAIL_RULES)
# Of sums and products of a few dozen numbers below one, in float64.
ARITHMETIC = 1e-14


@dataclass(frozen=True)
class Rounding:
    """A stored log-prob l is off by at most relative * |l| + absolute."""

    relative: float
    absolute: float


# relative: half a unit in the last place of the format in which log-probs were stored (float32 and float64: one, for
# the arithmetic). absolute: logits of size 64 and a normaliser summed over the vocabulary, both in float32 (float64).
ROUNDINGS = {
    "float64": Rounding(2.0**-52, 2.0**-45),
    "float32": Rounding(2.0**-23, 2.0**-16),
    "bfloat16": Rounding(2.0**-8, 2.0**-16),
    "float16": Rounding(2.0**-11, 2.0**-16),
}
EXACT = Rounding(0.0, 0.0)


@dataclass(frozen=True)
class Bounds:
    """What is known of both policies: masses on the support [..., S], and of the tail [...] the following.

    mu_tail, pi_tail: masses. largest_mu: of one id. collision: c2 = sum pi_j^2. cross: sum pi_j mu_j. sum_pi_squared:
    over the whole vocabulary. sampled: [...] int, slot of the sampled token.
    """

    mu: Interval
    pi: Interval
    mu_tail: Interval
    pi_tail: Interval
    largest_mu: Tensor
    collision: Interval
    cross: Interval
    sum_pi_squared: Interval
    sampled: Tensor


def direction_interval(signals: Signals, measure: Measure, rounding: Rounding) -> Interval:
    """Bounds of the full-vocabulary direction of each token, [B, T] float64; EXACT gives them without rounding.

    Raises ValueError for a measure without a known bound, or signals without a support.
    """
    if measure.name not in _DIRECTIONS:
        raise ValueError(
            f"certificate of {measure.name}: no bound is known, a tail's quotients pi_j / mu_j may be of any size; "
            f"allowed are {', '.join(_DIRECTIONS)}"
        )
    known = bounds(signals, rounding)
    return _DIRECTIONS[measure.name](known).widened(ARITHMETIC)


def certified_direction(
    signals: Signals, measure: Measure, fallback: str, rounding: Rounding, support: SupportRule = "added"
) -> Tensor:
    """The sign of the full-vocabulary direction where it is certain, elsewhere the fall-back's direction, [B, T].

    fallback: keep (0, so that no mask drops), ratio, or a tail rule of the predictive direction on `support`.
    """
    if fallback not in FALLBACKS:
        raise ValueError(f"fall-back = {fallback!r}: allowed are {', '.join(FALLBACKS)}")
    certain = direction_interval(signals, measure, rounding).decided()
    if fallback == "keep":
        guess = torch.zeros_like(signals.logp_pi)
    elif fallback == "ratio":
        guess = ratio_direction(signals)
    else:
        guess = predictive_direction(with_support_rule(signals, support), measure, fallback)  # type: ignore[arg-type]
    return torch.where(certain != 0, certain.to(guess), guess)


def decided_share(interval: Interval, among: Tensor) -> float:
    """Share of the tokens in `among` ([B, T] bool) whose sign is certain; 0 where there is none."""
    decided = (interval.decided() != 0) & among
    return int(decided.sum()) / max(int(among.sum()), 1)


def bounds(signals: Signals, rounding: Rounding) -> Bounds:
    """What a row of top-K log-probs says about both policies. Raises ValueError where there is no support."""
    support = require_support(signals)
    mu = _probabilities(support.logp_mu, support.valid, rounding)
    pi = _probabilities(support.logp_pi, support.valid, rounding)
    one = Interval(torch.ones_like(mu.lower[..., 0]), torch.ones_like(mu.lower[..., 0]))
    mu_tail, pi_tail = ((one - p.sum()).clamped(0.0, 1.0) for p in (mu, pi))
    unseen = torch.full_like(one.lower, torch.inf)
    if signals.vocab_size is not None:
        unseen = (signals.vocab_size - support.valid.sum(-1)).to(unseen)
        # No unseen id, no tail: what is left of one is rounding.
        some = (unseen > 0).to(one.lower)
        mu_tail, pi_tail = (Interval(p.lower * some, p.upper * some) for p in (mu_tail, pi_tail))
    least = torch.where(support.valid[..., :-1], mu.upper[..., :-1], 1.0)
    largest = torch.minimum(mu_tail.upper, torch.cat([least, least.new_ones(*least.shape[:-1], 1)], -1).amin(-1))
    collision = Interval(pi_tail.lower.square() / unseen.clamp(min=1), pi_tail.upper.square())
    retained = pi.square().sum()
    total = retained + collision
    if signals.sum_pi_squared is not None:
        stored = signals.sum_pi_squared.double()
        # A sum of squares: twice the error of its log-probs, and its own rounding.
        width = stored * (2 * rounding.relative + 4 * rounding.absolute)
        total = total.intersected(Interval(stored - width, stored + width))
        # Of no tail, the difference may round to below zero.
        collision = collision.intersected(total - retained).clamped(0.0, 1.0)
    # The other unseen ids hold at most `largest` each, so a tail of few ids cannot hide its mass from pi.
    fewest = (mu_tail.lower - ((unseen - 1).clamp(min=0) * largest).nan_to_num(torch.inf)).clamp(min=0.0)
    cross = Interval(
        pi_tail.lower * fewest,
        torch.minimum(pi_tail.upper * largest, (collision.upper * mu_tail.upper * largest).sqrt()),
    )
    return Bounds(mu, pi, mu_tail, pi_tail, largest, collision, cross, total, sampled_slot(support))


def _probabilities(logp: Tensor, valid: Tensor, rounding: Rounding) -> Interval:
    """exp(logp) and what its rounding may hide, zero in invalid slots; a log-prob above zero is a certain token."""
    logp = torch.where(valid, logp, -torch.inf).double()
    possible = logp != -torch.inf
    size = torch.where(possible, logp, 0.0)
    error = rounding.relative * size.abs() + rounding.absolute + size.clamp(min=0.0)
    lower, upper = ((size.clamp(max=0.0) + sign * error).clamp(max=0.0).exp() for sign in (-1, 1))
    return Interval(torch.where(possible, lower, 0.0), torch.where(possible, upper, 0.0))


def _forward_kl(b: Bounds) -> Interval:
    """(pi_k - mu_k) + sum pi mu - sum pi^2, and once more with the tail's part of both sums taken together."""
    local = b.pi.at(b.sampled) - b.mu.at(b.sampled)
    products = (b.pi * b.mu).sum()
    apart = local + products + b.cross - b.sum_pi_squared
    # sum_T pi_j mu_j <= sqrt(c2 q), q >= sum_T mu_j^2; sqrt(c2 q) - c2 is largest at c2 = q / 4.
    q = b.mu_tail.upper * b.largest_mu
    worst = torch.minimum(torch.maximum(q / 4, b.collision.lower), b.collision.upper)
    highest = torch.minimum(b.cross.upper - b.collision.lower, (worst * q).sqrt() - worst)
    tail = Interval(b.cross.lower - b.collision.upper, highest)
    return apart.intersected(local + products - b.pi.square().sum() + tail)


def _tv(b: Bounds) -> Interval:
    """(pi_k s_k - sum pi^2 s - sum pi s (pi_k - sum pi^2)) / 2 with s = sign(pi - mu), any sign in the tail."""
    sign = (b.pi - b.mu).sign()
    token = b.pi.at(b.sampled)
    squares = (b.pi.square() * sign).sum() + _around_zero(b.collision.upper)
    mean = ((b.pi * sign).sum() + _around_zero(b.pi_tail.upper)).clamped(-1.0, 1.0)
    return (token * sign.at(b.sampled) - squares - mean * (token - b.sum_pi_squared)).scaled(0.5)


def _hellinger2(b: Bounds) -> Interval:
    """(c (pi_k - sum pi^2) - sqrt(pi_k mu_k) + sum pi sqrt(pi mu)) / 2 with c = sum sqrt(pi mu)."""
    roots = (b.pi * b.mu).sqrt()
    coefficient = (roots.sum() + _from_zero((b.pi_tail * b.mu_tail).sqrt().upper)).clamped(0.0, 1.0)
    weighted = (b.pi * roots).sum() + _from_zero((b.collision.upper * b.cross.upper).sqrt())
    return (coefficient * (b.pi.at(b.sampled) - b.sum_pi_squared) - roots.at(b.sampled) + weighted).scaled(0.5)


def _l2(b: Bounds) -> Interval:
    """pi_k e_k - sum pi^2 e - sum pi e (pi_k - sum pi^2) with e = pi - mu."""
    excess, token = b.pi - b.mu, b.pi.at(b.sampled)
    tail = Interval(-b.collision.upper * b.largest_mu, b.collision.upper * b.collision.upper.sqrt())
    squares = (b.pi.square() * excess).sum() + tail
    mean = (b.pi * excess).sum() + b.collision - b.cross
    return token * excess.at(b.sampled) - squares - mean * (token - b.sum_pi_squared)


def _around_zero(size: Tensor) -> Interval:
    return Interval(-size, size)


def _from_zero(size: Tensor) -> Interval:
    return Interval(torch.zeros_like(size), size)


_DIRECTIONS: dict[str, Callable[[Bounds], Interval]] = {
    FORWARD_KL.name: _forward_kl,
    TV.name: _tv,
    HELLINGER2.name: _hellinger2,
    L2.name: _l2,
}
CERTIFIED_MEASURES = tuple(_DIRECTIONS)
