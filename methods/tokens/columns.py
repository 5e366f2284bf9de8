"""What the criteria say about a token's next step, and what a step did: the columns of the token study, from logits.

Shapes: N tokens, V vocabulary, S support slots (the recorded top K of mu and the sampled token), K candidates.
The protocol is that of arXiv 2607.10848, 4.2 [S], with the ground truth that a full vocabulary gives [N].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from methods.certificate import ROUNDINGS, direction_interval
from methods.directions import TAIL_RULES, full_direction, reduced_direction, sampled_slot
from methods.finite_step import finite_change
from methods.masks import capped_ratio
from methods.measures import FORWARD_KL, MEASURES, Measure, reduced_value
from methods.signals import LOG_RATIO_LIMIT, Signals, Support
from methods.support import Masses, masses, with_sampled
from methods.tokens import schema

# Rows times columns of one chunk of the work over a full vocabulary: 16 MB of float32.
CHUNK_ELEMENTS = 1 << 22

Columns = dict[str, Tensor]


@dataclass(frozen=True)
class Tokens:
    """What a rollout recorded of N tokens: ids, log-probs, support (slots [N, S], the sampled id in the last one).

    advantages: [N]. ratio_cap: C of the step A min(r, C) that the finite-step criterion imagines, or None.
    """

    sampled: Tensor
    advantages: Tensor
    support_ids: Tensor
    support_logp: Tensor
    support_valid: Tensor
    vocab_size: int
    ratio_cap: float | None

    def support(self, logp_pi: Tensor) -> Support:
        """The recorded support with pi's log-probs on it, [N, S]; logp_pi: [N, V]."""
        at_ids = logp_pi.gather(-1, self.support_ids.clamp(min=0))
        return Support(self.support_ids, self.support_logp, at_ids, self.support_valid)

    def classes(self, logp_pi: Tensor) -> Masses:
        """Masses of the recorded support under mu as recorded and pi, logp_pi: [N, V]."""
        return masses(self.support(logp_pi), self.vocab_size)

    def signals(self, logp_pi: Tensor, sum_pi_squared: Tensor) -> Signals:
        """The tokens as one row [1, N] of what a method may look at."""
        support = self.support(logp_pi)
        at_k = logp_pi.gather(-1, self.sampled.unsqueeze(-1)).squeeze(-1)
        mu_k = self.support_logp.gather(-1, sampled_slot(support).unsqueeze(-1)).squeeze(-1)
        row = Support(*(getattr(support, name).unsqueeze(0) for name in ("ids", "logp_mu", "logp_pi", "valid")))
        return Signals(
            logp_pi=at_k.unsqueeze(0),
            logp_mu=mu_k.unsqueeze(0),
            advantages=self.advantages.unsqueeze(0),
            response_mask=torch.ones_like(at_k, dtype=torch.bool).unsqueeze(0),
            support=row,
            sum_pi_squared=sum_pi_squared.unsqueeze(0),
            vocab_size=self.vocab_size,
        )


def before(tokens: Tokens, mu_logits: Tensor, pi_logits: Tensor, ks: Sequence[int]) -> Columns:
    """Divergences and every criterion's direction before the step; logits [N, V] at the sampling temperature."""
    return _in_chunks(lambda part, mu, pi: _before(part, mu, pi, ks), tokens, mu_logits, pi_logits)


def after(tokens: Tokens, mu_logits: Tensor, pi_logits: Tensor, moved_logits: Tensor) -> Columns:
    """Divergences after the step, and how the logits' move explains their change; all [N, V]."""
    return _in_chunks(_after, tokens, mu_logits, pi_logits, moved_logits)


def finite_step_change(mu: Tensor, pi: Tensor, sampled: Tensor, c: Tensor) -> Tensor:
    """Exact change of KL(mu || softmax z) when z moves by c (e_k - pi): [N, V] twice, [N] twice, to [N] [N]."""
    place = sampled.unsqueeze(-1)
    move = (-pi).scatter_add(-1, place, torch.ones_like(place, dtype=pi.dtype))
    # A step beyond any log-ratio that carries information is no other step.
    return finite_change(mu, pi, move, c.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT))


def _before(tokens: Tokens, mu_logits: Tensor, pi_logits: Tensor, ks: Sequence[int]) -> Columns:
    logp_mu, logp_pi = mu_logits.log_softmax(-1), pi_logits.log_softmax(-1)
    mu, pi = logp_mu.exp(), logp_pi.exp()
    k = tokens.sampled
    squared = pi.square().sum(-1)
    classes, slots = tokens.classes(logp_pi), sampled_slot(tokens.support(logp_pi))
    at_k = logp_pi.gather(-1, k.unsqueeze(-1)).squeeze(-1)
    out: Columns = {
        "logp_pi": at_k,
        "logp_mu_forward": logp_mu.gather(-1, k.unsqueeze(-1)).squeeze(-1),
        "sum_pi_squared": squared,
        # 0 * -inf of an impossible token is no part of the entropy.
        "entropy": -(pi * logp_pi.masked_fill(pi == 0, 0.0)).sum(-1),
        "top_mass_mu": classes.mu[..., :-1].sum(-1),
    }
    for name in schema.MEASURES:
        measure = MEASURES[name]
        out |= _divergences(measure, mu, pi, classes, "before")
        out[schema.direction(name, "full")] = full_direction(measure, mu, pi, k)
        for rule in TAIL_RULES:
            out[schema.direction(name, rule)] = reduced_direction(measure, classes, slots, rule, squared)
    signals = tokens.signals(logp_pi, squared)
    certified = direction_interval(signals, FORWARD_KL, ROUNDINGS["float32"])
    out |= {"certificate_low": certified.lower[0], "certificate_high": certified.upper[0]}
    weight = capped_ratio(signals, tokens.ratio_cap)[0]
    for size in schema.STEPS:
        out[schema.finite_step(size)] = finite_step_change(mu, pi, k, size * weight * tokens.advantages)
    ranked = logp_mu.topk(max(ks), dim=-1).indices if ks else logp_mu.new_zeros(len(k), 0, dtype=torch.int64)
    for size in ks:
        out |= _sweep(size, ranked[..., :size], k, logp_mu, logp_pi, squared, tokens.vocab_size)
    return out


def _sweep(
    size: int, candidates: Tensor, sampled: Tensor, logp_mu: Tensor, logp_pi: Tensor, squared: Tensor, vocab_size: int
) -> Columns:
    """The reduced divergence and its directions with the `size` likeliest tokens of mu and the sampled one."""
    ids, valid = with_sampled(candidates, sampled)
    support = Support(ids, logp_mu.gather(-1, ids), logp_pi.gather(-1, ids), valid)
    classes = masses(support, vocab_size)
    slots = sampled_slot(support)
    measure = MEASURES[schema.SWEEP_MEASURE]
    out = {schema.sweep(size): reduced_value(measure, classes.mu, classes.pi, classes.mu_tail, classes.pi_tail)}
    return out | {
        schema.sweep(size, rule): reduced_direction(measure, classes, slots, rule, squared) for rule in TAIL_RULES
    }


def _after(tokens: Tokens, mu_logits: Tensor, pi_logits: Tensor, moved_logits: Tensor) -> Columns:
    # As in `_before`, so that logits that did not move give exactly no change.
    logp_mu, logp_pi, moved = (logits.log_softmax(-1) for logits in (mu_logits, pi_logits, moved_logits))
    mu, pi = logp_mu.exp(), logp_pi.exp()
    classes = tokens.classes(moved)
    out: Columns = {}
    for name in schema.MEASURES:
        out |= _divergences(MEASURES[name], mu, moved.exp(), classes, "after")
    k = tokens.sampled.unsqueeze(-1)
    move = moved - logp_pi
    # Along c (e_k - pi) the log-prob of k moves at rate 1 - 2 pi_k + sum pi^2 = (1 - pi_k)^2 + sum over others of pi^2,
    # written so that a token near certainty keeps its digits (the others cannot raise log pi_k).
    at_k = logp_pi.gather(-1, k).squeeze(-1)
    others = (pi.square().sum(-1) - at_k.exp().square()).clamp(min=0.0)
    rate = (torch.expm1(at_k).square() + others).clamp(min=torch.finfo(pi.dtype).tiny)
    own = (move.gather(-1, k).squeeze(-1) - (pi * move).sum(-1)) / rate
    out["own_step"] = own
    out["own_step_change"] = finite_step_change(mu, pi, tokens.sampled, own)
    out["batch_first_order"] = ((pi - mu) * move).sum(-1)
    return out


def _divergences(measure: Measure, mu: Tensor, pi: Tensor, classes: Masses, when: str) -> Columns:
    return {
        schema.divergence(measure.name, "full", when): measure.value(mu, pi),
        schema.divergence(measure.name, "reduced", when): reduced_value(
            measure, classes.mu, classes.pi, classes.mu_tail, classes.pi_tail
        ),
    }


def _in_chunks(work: Callable[..., Columns], tokens: Tokens, *logits: Tensor) -> Columns:
    rows = max(1, CHUNK_ELEMENTS // logits[0].shape[-1])
    parts = []
    # At least one chunk, so that no tokens give empty columns.
    for start in range(0, max(len(tokens.sampled), 1), rows):
        chosen = slice(start, start + rows)
        part = Tokens(
            tokens.sampled[chosen],
            tokens.advantages[chosen],
            tokens.support_ids[chosen],
            tokens.support_logp[chosen],
            tokens.support_valid[chosen],
            tokens.vocab_size,
            tokens.ratio_cap,
        )
        parts.append(work(part, *(x[chosen].float() for x in logits)))
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
