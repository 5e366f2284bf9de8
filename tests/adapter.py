"""`call(fn, **args)`: the quantities of tests/data/cases.json out of this project's own code.

It converts types and composes our functions; it holds no formula, which would test nothing but itself. What the
project lacks raises NotImplementedError. Plain lists in, plain numbers out; "inf", "-inf" and "nan" may be strings.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from methods import aggregation, measures, registry
from methods.catalogue import drpo
from methods.clipping import ClipConfig, clipped_coefficient
from methods.directions import full_direction, predictive_direction, ratio_direction
from methods.masks import MaskConfig, masked_coefficient, topk_divergence, trust_region_keep
from methods.measures import FORWARD_KL, REVERSE_KL, TV, Measure
from methods.rows import geometric_ratio
from methods.signals import Signals, Support, sanitise
from methods.support import with_sampled
from reference_math.advantages import group_advantages
from reference_math.estimators import ESTIMATORS
from reference_math.surrogates import clipped_surrogate
from reference_math.temperature import log_prob_at_temperature

Result = float | int | list[float]

_SPECIAL = {"inf", "+inf", "-inf", "nan"}
_TOPK_MEASURES = {"topk_tv": TV, "topk_kl": FORWARD_KL}
_BINARY_MEASURES = {"binary_tv": measures.binary_tv, "binary_kl": measures.binary_kl}


def call(fn: str, *, dtype: torch.dtype = torch.float64, **args: Any) -> Result:
    """Value of the quantity `fn`, computed in `dtype`. Raises NotImplementedError for what the project lacks."""
    if fn not in _FUNCTIONS:
        raise NotImplementedError(f"{fn}: not part of the project yet")
    return _FUNCTIONS[fn](_Reader(dtype), **{name: _floats(value) for name, value in args.items()})


def _floats(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_floats(item) for item in value]
    return float(value) if isinstance(value, str) and value.lower() in _SPECIAL else value


class _Reader:
    """Turns plain values into tensors of one dtype."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype

    def __call__(self, value: Any) -> Tensor:
        return torch.tensor(value, dtype=self.dtype)

    def signals(
        self, adv: float, pi_logp: float, mu_logp: float, support: Support | None = None, vocab: int | None = None
    ) -> Signals:
        """Signals of one token."""
        return sanitise(
            Signals(
                logp_pi=self([[pi_logp]]),
                logp_mu=self([[mu_logp]]),
                advantages=self([[adv]]),
                response_mask=torch.ones(1, 1, dtype=torch.bool),
                support=support,
                vocab_size=vocab,
            )
        )

    def row(self, *, ids, mu_logp, pi_logp, k, mu_k_logp, pi_k_logp, vocab=None, adv: float = 1.0) -> Signals:
        """Signals of one token with its top-K row."""
        candidates = torch.tensor(ids, dtype=torch.int64).reshape(1, 1, -1)
        slots, valid = with_sampled(candidates, torch.tensor([[k]]), self([[mu_logp]]))
        support = Support(slots, self([[[*mu_logp, mu_k_logp]]]), self([[[*pi_logp, pi_k_logp]]]), valid)
        return self.signals(adv, pi_k_logp, mu_k_logp, support, vocab)


def _distribution(measure: Measure) -> Callable[..., float]:
    return lambda read, mu, pi: measure.value(*_pair(read, mu, pi)).item()


def _full_direction(measure: Measure) -> Callable[..., float]:
    def direction(read: _Reader, pi: Any, mu: Any, k: int) -> float:
        if not 0 <= k < len(pi):
            raise ValueError(f"k = {k}: allowed is 0 to {len(pi) - 1}")
        return full_direction(measure, *_pair(read, mu, pi), torch.tensor(k)).item()

    return direction


def _pair(read: _Reader, mu: Any, pi: Any) -> tuple[Tensor, Tensor]:
    if len(mu) != len(pi):
        raise ValueError(f"mu has {len(mu)} probabilities and pi {len(pi)}: allowed is one vocabulary")
    return read(mu), read(pi)


def _topk(measure: Measure) -> Callable[..., float]:
    return lambda read, **row: topk_divergence(read.row(**row), measure).item()


def _topk_direction(rule: Any) -> Callable[..., float]:
    return lambda read, **row: predictive_direction(read.row(**row), FORWARD_KL, rule).item()


def _binary(kind: str) -> Callable[..., float]:
    def measured(read: _Reader, pi_logp: float, mu_logp: float) -> float:
        signals = read.signals(0.0, pi_logp, mu_logp)
        return _BINARY_MEASURES[kind](signals.logp_mu, signals.logp_pi).item()

    return measured


def _kept(advantages: Tensor, divergence: Tensor, direction: Tensor, delta_low: float, delta_high: float) -> float:
    return float(trust_region_keep(advantages, divergence, direction, (delta_low, delta_high)).item())


def _dppo_mask(read: _Reader, kind: str, adv: float, pi_logp: float, mu_logp: float, **delta: float) -> float:
    signals = read.signals(adv, pi_logp, mu_logp)
    divergence = _named(_BINARY_MEASURES, kind)(signals.logp_mu, signals.logp_pi)
    return _kept(signals.advantages, divergence, ratio_direction(signals), **delta)


def _dppo_mask_topk(read: _Reader, kind: str, delta_low: float, delta_high: float, **row: Any) -> float:
    signals = read.row(**row)
    divergence = topk_divergence(signals, _named(_TOPK_MEASURES, kind))
    return _kept(signals.advantages, divergence, ratio_direction(signals), delta_low, delta_high)


def _predictive_mask(read: _Reader, adv: float, divergence: float, direction: float, **delta: float) -> float:
    for name, value in (("adv", adv), ("divergence", divergence), ("direction", direction)):
        if math.isnan(value):
            raise ValueError(f"{name} = {value}: allowed is a number")
    return _kept(read(adv), read(divergence), read(direction), **delta)


def _predictive_mask_full(read: _Reader, adv: float, pi: Any, mu: Any, k: int, **delta: float) -> float:
    mu, pi = read(mu), read(pi)
    direction = full_direction(FORWARD_KL, mu, pi, torch.tensor(k))
    return _kept(read(adv), FORWARD_KL.value(mu, pi), direction, **delta)


def _drpo_weight(read: _Reader, adv: float, pi_logp: float, mu_logp: float, delta: float) -> float:
    signals = read.signals(adv, pi_logp, mu_logp)
    config = drpo.Config(delta=delta)
    return drpo.weight(signals.advantages, signals.logp_pi, signals.logp_mu, config.delta).item()


def _policy_coef(read: _Reader, method: str, adv: float, pi_logp: float, mu_logp: float, **options: Any) -> float:
    """Derivative of the loss with respect to log pi: the negative of a method's coefficient."""
    signals = read.signals(adv, pi_logp, mu_logp)
    if method.startswith("dppo_binary"):
        return -_dppo_binary(signals, method.removeprefix("dppo_"), **options).item()
    if method in ("ppo", "grpo"):
        return -clipped_coefficient(signals, _clip(**options)).item()
    if method not in registry.names():
        raise NotImplementedError(f"policy_coef: {method} is not in the catalogue")
    ours = registry.get(method)
    return -ours.coefficient(signals, ours.configure(options)).item()


def _dppo_binary(
    signals: Signals, kind: str, delta_low: float, delta_high: float, ratio_cap: float | None = None
) -> Tensor:
    binary = _named(_BINARY_MEASURES, kind)
    return masked_coefficient(
        signals,
        MaskConfig(delta=(delta_low, delta_high), ratio_cap=ratio_cap),
        divergence=binary(signals.logp_mu, signals.logp_pi),
        direction=ratio_direction(signals),
    )


def _dppo_dropped_loss(read: _Reader, adv: float, pi_logp: float, mu_logp: float, **options: Any) -> float:
    """The loss of one token under DPPO Binary-TV, whose mask it may or may not pass."""
    signals = read.signals(adv, pi_logp, mu_logp)
    coefficient = _dppo_binary(signals, "binary_tv", **options)
    return aggregation.token_losses(coefficient, signals.logp_pi).item()


def _clip(eps_low: float, eps_high: float, clip_c: float | None = None) -> ClipConfig:
    return ClipConfig(eps_low=eps_low, eps_high=eps_high, dual_clip=clip_c)


def _ppo_loss(read: _Reader, adv: float, pi_logp: float, old_logp: float, **clip: Any) -> float:
    signals = read.signals(adv, pi_logp, old_logp)
    return -clipped_surrogate(signals.advantages, signals.ratio(), _clip(**clip)).item()


def _ppo_row(read: _Reader, pi_logps: Any, old_logps: Any, advs: Any, mask: Any, **clip: Any) -> list[float]:
    """Mean loss over the valid tokens, and its derivative with respect to each log pi."""
    signals = sanitise(Signals(read([pi_logps]), read([old_logps]), read([advs]), torch.tensor([mask]).bool()))
    loss = -clipped_surrogate(signals.advantages, signals.ratio(), _clip(**clip))
    logp_pi = torch.zeros_like(loss, requires_grad=True)
    per_token = aggregation.token_losses(clipped_coefficient(signals, _clip(**clip)), logp_pi)
    aggregation.aggregate(per_token, signals.response_mask, "token-mean").backward()
    assert logp_pi.grad is not None
    return [aggregation.aggregate(loss, signals.response_mask, "token-mean").item(), *logp_pi.grad[0].tolist()]


def _gspo_ratio(read: _Reader, pi_logps: Any, old_logps: Any, mask: Any) -> float:
    row = sanitise(Signals(read([pi_logps]), read([old_logps]), read([[0.0] * len(mask)]), torch.tensor([mask]).bool()))
    return geometric_ratio(row.logp_pi, row.logp_mu, row.response_mask).item()


def _kl_estimator(read: _Reader, kind: str, logp: float, ref_logp: float) -> float:
    return _named(ESTIMATORS, kind)(read(logp), read(ref_logp)).item()


def _grpo_adv(read: _Reader, rewards: Any, eps: float = 1e-6) -> list[float]:
    return group_advantages(read(rewards), normalise=True, eps=eps).tolist()


def _logp_at_temperature(read: _Reader, logits: Any, k: int, temperature: float) -> float:
    return log_prob_at_temperature(read(logits), torch.tensor(k), temperature).item()


def _agg_loss(read: _Reader, mode: str, losses: Any, mask: Any, horizon: float | None = None) -> float:
    return aggregation.aggregate(read(losses), torch.tensor(mask), mode, loss_scale_factor=horizon).item()


def _agg_loss_micro(read: _Reader, mode: str, micro: Any, horizon: float | None = None) -> float:
    """micro: dicts of losses and mask; the counts of the whole batch divide every part."""
    parts = [(read(_floats(part["losses"])), torch.tensor(part["mask"])) for part in micro]
    tokens, sequences = (sum(column) for column in zip(*(aggregation.counts(mask) for _, mask in parts), strict=True))
    settings: Any = {
        "batch_num_tokens": tokens,
        "global_batch_size": sequences,
        # One horizon for all parts: that of the batch they were cut from.
        "loss_scale_factor": horizon or max(losses.shape[-1] for losses, _ in parts) or None,
    }
    return sum(aggregation.aggregate(losses, mask, mode, **settings).item() for losses, mask in parts)


def _entropy(read: _Reader, logits: Any) -> float:
    from methods.vocabulary import policy_statistics

    entropy = policy_statistics(read([logits]), torch.zeros(1, 0, dtype=torch.int64)).entropy.item()
    if math.isnan(entropy):
        raise ValueError(f"logits = {logits}: no distribution")
    return entropy


def _score(name: str) -> Callable[..., float]:
    def score(_: _Reader, **args: Any) -> float:
        from eval import metrics

        return float(getattr(metrics, name)(**args))

    return score


def _named(table: dict[str, Any], kind: str) -> Any:
    if kind not in table:
        raise NotImplementedError(f"{kind}: not part of the project yet; there are {', '.join(table)}")
    return table[kind]


_FUNCTIONS: dict[str, Callable[..., Result]] = {
    "forward_kl": _distribution(FORWARD_KL),
    "reverse_kl": _distribution(REVERSE_KL),
    "tv": _distribution(TV),
    "binary_tv": _binary("binary_tv"),
    "binary_kl": _binary("binary_kl"),
    "topk_tv": _topk(TV),
    "topk_kl": _topk(FORWARD_KL),
    "direction_exact": _full_direction(FORWARD_KL),
    "direction_tv": _full_direction(TV),
    "direction_reverse_kl": _full_direction(REVERSE_KL),
    "direction_topk_agg": _topk_direction("aggregated"),
    "direction_topk_uniform": _topk_direction("uniform"),
    "dppo_mask": _dppo_mask,
    "dppo_mask_topk": _dppo_mask_topk,
    "predictive_mask": _predictive_mask,
    "predictive_mask_full": _predictive_mask_full,
    "drpo_weight": _drpo_weight,
    "policy_coef": _policy_coef,
    "dppo_dropped_loss": _dppo_dropped_loss,
    "ppo_loss": _ppo_loss,
    "ppo_row": _ppo_row,
    "gspo_ratio": _gspo_ratio,
    "kl_estimator": _kl_estimator,
    "grpo_adv": _grpo_adv,
    "logp_at_temperature": _logp_at_temperature,
    "agg_loss": _agg_loss,
    "agg_loss_micro": _agg_loss_micro,
    "entropy": _entropy,
    "avg_at_k": _score("avg_at_k"),
    "pass_at_k": _score("pass_at_k"),
    "stderr_avg_at_k": _score("stderr_avg_at_k"),
}
