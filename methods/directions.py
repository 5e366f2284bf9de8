"""Direction criteria: would a step on the sampled token (for A > 0) push pi farther from mu?

Shapes: B sequences, T response tokens, S support slots, V vocabulary. All return [...] real numbers d of which only
the sign matters; an update moves outward where A * d > 0. Two more criteria have files of their own: `certificate`
(an interval) and `finite_step` (the exact change for a step of given size).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from methods.measures import Measure, reduced_classes
from methods.signals import Signals, Support, log_ratio, probability
from methods.support import Masses, masses

TailRule = Literal["none", "aggregated", "uniform", "collision"]
TAIL_RULES: tuple[TailRule, ...] = ("none", "aggregated", "uniform", "collision")
# How much of the vocabulary a divergence and its direction see: a support with a rule for its tail, or all of it.
Tail = TailRule | Literal["full"]
TAILS: tuple[Tail, ...] = (*TAIL_RULES, "full")


def ratio_direction(signals: Signals) -> Tensor:
    """The direction PPO and DPPO read off the sampled token: sign(r - 1), as log r. [B, T]."""
    return log_ratio(signals.logp_pi, signals.logp_mu)


def full_direction(measure: Measure, mu: Tensor, pi: Tensor, sampled: Tensor) -> Tensor:
    """Change of D per unit step along e_k - pi in the logits, over the whole vocabulary.

    mu, pi: [..., V] probabilities; sampled: [...] int. Returns h_k - sum_i pi_i h_i ([N]; for the
    forward KL this is Eq. 7 of arXiv 2607.10848: (pi_k - mu_k) + sum_i pi_i (mu_i - pi_i) [S]).
    """
    gradient = measure.logit_gradient(mu, pi)
    local = gradient.gather(-1, sampled.unsqueeze(-1)).squeeze(-1)
    return local - (pi * gradient).sum(-1)


def tail_rate(rule: TailRule, classes: Masses, sum_pi_squared: Tensor | None) -> Tensor:
    """Share c2 / pi_T of the tail's logit gradient that the softmax couples in, [...] [N].

    c2 is the collision mass of pi in the tail. aggregated: pi_T^2, one merged logit (Eq. 10 [S]); uniform:
    pi_T^2 / (n - m), an even tail (Eq. 11 [S]); collision: measured, sum pi^2 minus the retained part [N]; none: 0.
    Raises ValueError where a rule needs what the signals lack.
    """
    if rule == "none":
        return torch.zeros_like(classes.pi_tail)
    if rule == "aggregated":
        return classes.pi_tail
    if rule == "uniform":
        if classes.unseen is None:
            raise ValueError("tail rule 'uniform' needs signals.vocab_size, the number of real token ids")
        return classes.pi_tail / classes.unseen
    if rule == "collision":
        if sum_pi_squared is None:
            raise ValueError("tail rule 'collision' needs signals.sum_pi_squared over the whole vocabulary")
        collision = sum_pi_squared - classes.pi.square().sum(-1)
        # Between the even and the one-token tail by definition; rounding of two nearly equal sums may leave it.
        collision = torch.minimum(collision.clamp(min=0.0), classes.pi_tail.square())
        empty = classes.pi_tail <= 0
        return torch.where(empty, torch.zeros_like(collision), collision / torch.where(empty, 1.0, classes.pi_tail))
    raise ValueError(f"tail rule = {rule!r}: allowed are {', '.join(TAIL_RULES)}")


def reduced_direction(
    measure: Measure, classes: Masses, sampled_slot: Tensor, rule: TailRule, sum_pi_squared: Tensor | None = None
) -> Tensor:
    """Change of the reduced divergence (support plus one tail class) per unit step along e_k - pi, [...].

    classes: masses on the support; sampled_slot: [...] int, the slot that holds the sampled token.
    h_k - sum_S pi_i h_i - (c2 / pi_T) h_T; Eqs. 10 and 11 of arXiv 2607.10848 for the forward KL [S], all measures [N].
    """
    gradient = measure.logit_gradient(
        *reduced_classes(measure, classes.mu, classes.pi, classes.mu_tail, classes.pi_tail)
    )
    local = gradient.gather(-1, sampled_slot.unsqueeze(-1)).squeeze(-1)
    retained = (classes.pi * gradient[..., :-1]).sum(-1)
    return local - retained - tail_rate(rule, classes, sum_pi_squared) * gradient[..., -1]


def sampled_slot(support: Support) -> Tensor:
    """[...] int: the slot of the sampled token: the valid one among those that hold the last slot's id."""
    holds = (support.ids == support.ids[..., -1:]) & support.valid
    return holds.to(torch.int8).argmax(-1)


def predictive_direction(signals: Signals, measure: Measure, tail: Tail) -> Tensor:
    """Predicted change of the divergence for each sampled token, [B, T]: of the reduced one, or of the `full` one.

    Raises ValueError where the signals lack the support, the full distributions, or what a tail rule needs.
    """
    if tail == "full":
        mu, pi, sampled = require_full(signals)
        return full_direction(measure, mu, pi, sampled)
    support = require_support(signals)
    classes = masses(support, signals.vocab_size)
    # Read where it is used: a method with another rule need not ask for it.
    squared = signals.sum_pi_squared if tail == "collision" else None
    return reduced_direction(measure, classes, sampled_slot(support), tail, squared)


def random_direction(signals: Signals, outside: Tensor, reference: Tensor) -> Tensor:
    """A control: sign(A) for as many tokens of `outside` as `reference` calls outward, drawn by chance, else 0; [B, T].

    outside: bool; reference: a direction. Numbers are matched exactly for each sign of A, over all rows given.
    Raises ValueError where the signals carry no random numbers.
    """
    if signals.uniforms is None:
        raise ValueError("signals.uniforms is missing: a random mask needs seeded numbers in [0, 1), one per token")
    sign = torch.sign(signals.advantages)
    drawn = torch.zeros_like(outside)
    for side in (1, -1):
        pool = outside & (sign == side)
        wanted = (pool & (sign * torch.sign(reference) > 0)).sum()
        order = torch.where(pool, signals.uniforms, torch.inf).flatten().argsort(stable=True)
        drawn |= pool & (order.argsort() < wanted).reshape(pool.shape)
    return torch.where(drawn, sign, 0.0)


def require_support(signals: Signals) -> Support:
    """The support, or a ValueError that names the setting to switch on."""
    if signals.support is None:
        raise ValueError(
            "signals.support is missing: this method needs the rollout's top-K log-probs "
            "(actor_rollout_ref.rollout.custom.top_k >= 1 with the tether worker)"
        )
    return signals.support


def require_full(signals: Signals) -> tuple[Tensor, Tensor, Tensor]:
    """(mu, pi, sampled): probabilities of both policies over the whole vocabulary [B, T, V], sampled ids [B, T].

    Raises ValueError that names the missing field, or the first id outside the vocabulary.
    """
    for name in ("full", "sampled"):
        if getattr(signals, name) is None:
            raise ValueError(
                f"signals.{name} is missing: this method needs both policies' log-probs of the whole vocabulary and "
                "the sampled ids (tail: full)"
            )
    assert signals.full is not None and signals.sampled is not None
    mu, pi = (probability(logp) for logp in signals.full)
    outside = (signals.sampled < 0) | (signals.sampled >= mu.shape[-1])
    if outside.any():
        position = tuple(int(i) for i in outside.nonzero()[0])
        raise ValueError(
            f"signals.sampled{list(position)} = {signals.sampled[position].item()}: allowed are 0 to {mu.shape[-1] - 1}"
        )
    return mu, pi, signals.sampled
