"""What a method may look at: log-probs of both policies, advantages, and a bounded view of the vocabulary.

Shapes: B sequences, T response tokens, S support slots (K rollout candidates plus the sampled token), V vocabulary.
`mu` is the rollout policy exactly as the engine sampled it, `pi` the current policy.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum

import torch
from torch import Tensor

# exp(20) = 4.9e8: above any ratio that can carry information, far below float32's overflow at exp(88.7).
LOG_RATIO_LIMIT = 20.0
# Log-probs are differences of float32 sums; more than this above zero is not rounding but a fault upstream.
LOG_PROB_TOLERANCE = 0.05


class Scope(Enum):
    """How much of the optimiser step the tensors of one call cover (some methods rank over the mini-batch)."""

    ROW = "row"
    MICRO_BATCH = "micro-batch"
    MINI_BATCH = "mini-batch"


@dataclass(frozen=True)
class Support:
    """The retained tokens of each position: top-K of mu united with the sampled token.

    ids: [B, T, S] int64; logp_mu, logp_pi: [B, T, S] float32; valid: [B, T, S] bool (False: filler or repeated id).
    Values in invalid slots are arbitrary and never read.
    """

    ids: Tensor
    logp_mu: Tensor
    logp_pi: Tensor
    valid: Tensor


@dataclass(frozen=True)
class Signals:
    """Per-token inputs of a coefficient function; everything is detached.

    A method sees those that may be None only where its `needs` ask for them (methods/contract.py).

    logp_pi, logp_mu: [B, T] log-probs of the sampled token at the sampling temperature.
    advantages: [B, T]. response_mask: [B, T] bool.
    logp_old: [B, T] or None, log-probs of the weights before this rollout's first update (recomputed anchor).
    support: see `Support`, or None. sum_pi_squared: [B, T] or None, collision mass of pi over the whole vocabulary.
    entropy: [B, T] or None, of pi, in nats. vocab_size: number of real ids (head padding excluded), or None.
    full: [B, T, V] log-probs of both policies as (logp_mu, logp_pi), or None.
    sampled: [B, T] int64 ids of the sampled tokens, or None (a support names them too, in its last slot).
    uniforms: [B, T] in [0, 1), or None: seeded random numbers for controls that drop tokens by chance.
    """

    logp_pi: Tensor
    logp_mu: Tensor
    advantages: Tensor
    response_mask: Tensor
    logp_old: Tensor | None = None
    support: Support | None = None
    sum_pi_squared: Tensor | None = None
    entropy: Tensor | None = None
    vocab_size: int | None = None
    full: tuple[Tensor, Tensor] | None = None
    sampled: Tensor | None = None
    uniforms: Tensor | None = None
    scope: Scope = Scope.MICRO_BATCH

    def ratio(self) -> Tensor:
        """Importance ratio r = pi/mu of the sampled token, [B, T]; the log-ratio is limited to +-20."""
        return log_ratio(self.logp_pi, self.logp_mu).exp()


def log_ratio(logp_pi: Tensor, logp_mu: Tensor) -> Tensor:
    """log(pi/mu) limited to +-20 [F, released DPPO and DRPO code]; float32 or better, shape of the inputs.

    Where both policies hold the token impossible (two -inf) they agree, so the log-ratio is 0.
    """
    dtype = torch.promote_types(torch.promote_types(logp_pi.dtype, logp_mu.dtype), torch.float32)
    impossible = (logp_pi == -torch.inf) & (logp_mu == -torch.inf)
    difference = torch.where(impossible, 0.0, logp_pi.to(dtype) - logp_mu.to(dtype))
    return difference.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def probability(logp: Tensor) -> Tensor:
    """exp(logp) in float32 or better, never above one (a log-prob may exceed zero by rounding)."""
    return logp.to(torch.promote_types(logp.dtype, torch.float32)).clamp(max=0.0).exp()


def as_mask(name: str, mask: Tensor) -> Tensor:
    """bool, shape of the mask, which may hold 0 and 1 in any dtype.

    Raises ValueError naming the first other value: a weight is no mask, and neither are advantages.
    """
    if mask.dtype == torch.bool:
        return mask
    other = (mask != 0) & (mask != 1)
    if other.any():
        position = tuple(int(i) for i in other.nonzero()[0])
        raise ValueError(f"{name}{list(position)} = {mask[position].item()}: allowed are 0 and 1")
    return mask.bool()


def sanitise(signals: Signals) -> Signals:
    """Detach everything, replace what lies outside the response mask by neutral values, and check the rest.

    Raises ValueError for a field of another shape, a mask of other values than 0 and 1, flags in place of numbers, and
    naming the field and the first offending position for NaN, +inf, or a log-prob above zero by more than rounding can
    explain, inside the response mask.
    """
    mask = as_mask("response_mask", signals.response_mask)
    replaced: dict[str, object] = {"response_mask": mask}
    for field in fields(signals):
        value = getattr(signals, field.name)
        if not isinstance(value, Tensor) or field.name == "response_mask":
            continue
        if value.shape != mask.shape:
            raise ValueError(
                f"{field.name} of shape {tuple(value.shape)}: allowed is that of response_mask, {tuple(mask.shape)}"
            )
        if value.dtype == torch.bool:
            raise ValueError(f"{field.name} of dtype torch.bool: allowed are numbers, flags only in response_mask")
        value = value.detach()
        if field.name == "sampled":
            replaced["sampled"] = torch.where(mask, value, 0)
            continue
        value = value.to(torch.promote_types(value.dtype, torch.float32))
        kept = torch.where(mask, value, torch.zeros_like(value))
        _check_finite(field.name, kept, is_log_prob=field.name.startswith("logp"))
        replaced[field.name] = kept
    if signals.support is not None:
        replaced["support"] = _sanitise_support(signals.support, mask)
    if signals.full is not None:
        inside = mask.unsqueeze(-1)
        _check_slots("full", mask, logp_mu=signals.full[0], logp_pi=signals.full[1])
        replaced["full"] = tuple(
            _clean_log_probs(f"full.{name}", value, inside)
            for name, value in zip(("logp_mu", "logp_pi"), signals.full, strict=True)
        )
    values = {field.name: getattr(signals, field.name) for field in fields(signals)}
    return Signals(**{**values, **replaced})  # type: ignore[arg-type]


def _check_slots(name: str, mask: Tensor, **parts: Tensor) -> None:
    """Parts of one shape [B, T, n]: another one would be broadcast."""
    n = next(iter(parts.values())).shape[-1:]
    for part, value in parts.items():
        if value.shape != (*mask.shape, *n):
            raise ValueError(
                f"{name}.{part} of shape {tuple(value.shape)}: allowed is {(*mask.shape, *n)}, response_mask's and one "
                f"number of {'tokens' if name == 'full' else 'slots'} for all its parts"
            )


class ImpossibleSampleError(ValueError):
    """The rollout policy sampled a token at log-prob -inf: its ratio would be the largest that there is."""

    def __init__(self, i: int, t: int, where: str) -> None:
        super().__init__(
            f"logp_mu = -inf at sample {i} of {where}, token {t}: the rollout policy cannot have sampled what it holds "
            "impossible; allowed is a finite log-prob of every sampled token"
        )


def refuse_impossible_samples(logp_mu: Tensor, mask: Tensor, where: str) -> None:
    """Raises ImpossibleSampleError for a token inside the mask, both [B, T]; `where` says what the rows are."""
    impossible = (logp_mu == -torch.inf) & mask
    if impossible.any():
        i, t = (int(place) for place in impossible.nonzero()[0])
        raise ImpossibleSampleError(i, t, where)


def _sanitise_support(support: Support, mask: Tensor) -> Support:
    _check_slots("support", mask, **{field.name: getattr(support, field.name) for field in fields(support)})
    valid = support.valid.bool() & mask.unsqueeze(-1)
    missing = mask & ~((support.ids == support.ids[..., -1:]) & valid).any(-1)
    if missing.any():
        position = tuple(int(i) for i in missing.nonzero()[0])
        last = support.ids[position][-1].item()
        raise ValueError(
            f"support.ids{list(position)}: no valid slot holds the sampled token, which the last slot (id {last}) must "
            "name inside the response mask (methods.support.with_sampled builds such a support)"
        )
    # Each slot that is no candidate gets an id of its own, so that only candidates can be equal.
    others = -1 - torch.arange(valid.shape[-1], device=valid.device)
    ordered = torch.where(valid, support.ids, others).sort(-1).values
    repeated = (ordered[..., 1:] == ordered[..., :-1]).any(-1)
    if repeated.any():
        position = tuple(int(i) for i in repeated.nonzero()[0])
        raise ValueError(
            f"support.ids{list(position)}: an id is valid in two slots, so its mass would count twice; allowed is each "
            "id once (methods.support.distinct marks the first)"
        )
    return Support(
        ids=support.ids.detach(),
        logp_mu=_clean_log_probs("support.logp_mu", support.logp_mu, valid),
        logp_pi=_clean_log_probs("support.logp_pi", support.logp_pi, valid),
        valid=valid,
    )


def _clean_log_probs(name: str, value: Tensor, inside: Tensor) -> Tensor:
    """Detached, float32 or better, -inf (no mass) where `inside` is False."""
    value = value.detach().to(torch.promote_types(value.dtype, torch.float32))
    value = torch.where(inside, value, torch.full_like(value, -torch.inf))
    _check_finite(name, value, is_log_prob=True)
    return value


def _check_finite(name: str, value: Tensor, is_log_prob: bool) -> None:
    """-inf is a legal log-prob (an impossible token) for pi and mu; NaN and +inf never are."""
    bad = torch.isnan(value) | (value == torch.inf)
    reason = "is NaN or +inf"
    if is_log_prob and not bad.any():
        bad = value > LOG_PROB_TOLERANCE
        reason = f"is a log-prob above zero by more than {LOG_PROB_TOLERANCE}"
    elif not is_log_prob:
        bad |= value == -torch.inf
        reason = "is not finite"
    if bad.any():
        position = tuple(int(i) for i in bad.nonzero()[0])
        raise ValueError(f"{name}{list(position)} = {value[position].item()} {reason} inside the response mask")
