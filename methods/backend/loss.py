"""Each catalogue method as a registered verl policy loss, with typed options that Hydra reaches.

    actor_rollout_ref.actor.policy_loss._target_=methods.backend.loss.TetherPolicyLossConfig
    actor_rollout_ref.actor.policy_loss.loss_mode=drpo
    +actor_rollout_ref.actor.policy_loss.options.delta=0.15

In a user's own verl run the losses that need only sampled log-probs work by their name alone (paper defaults apply
when the stock config is used); what else a method declares to need is carried by the worker of this package.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from omegaconf import OmegaConf
from torch import Tensor
from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY, register_policy_loss
from verl.workers.config import PolicyLossConfig

from methods import registry
from methods.aggregation import aggregate, token_losses
from methods.backend.metrics import TokenMetrics
from methods.backend.requirements import refuse_what_is_missing, scope_of
from methods.backend.verl_keys import loss_scale_factor, refuse_idle_keys
from methods.registry import Method, Needs
from methods.signals import Signals, as_mask, refuse_impossible_samples, sanitise

PREFIX = "tether_"


@dataclass
class TetherPolicyLossConfig(PolicyLossConfig):
    """verl's policy-loss options plus the method's own (`options`) and the radius of the diagnostics."""

    options: dict[str, Any] = field(default_factory=dict)
    diagnostic_radius: float = 0.15

    def __post_init__(self) -> None:
        method_of(self.loss_mode).configure(self.options)


@dataclass(frozen=True)
class Carried:
    """What the worker adds to verl's arguments for one micro-batch: fields of `methods.signals.Signals` by name."""

    signals: Mapping[str, Any] = field(default_factory=dict)
    metrics: TokenMetrics | None = None


_CARRIED: contextvars.ContextVar[Carried | None] = contextvars.ContextVar("tether_carried", default=None)


@contextmanager
def carry(carried: Carried) -> Iterator[None]:
    """Make `carried` visible to the registered losses: verl's loss signature has no room for it."""
    token = _CARRIED.set(carried)
    try:
        yield
    finally:
        _CARRIED.reset(token)


def loss_name(method: str) -> str:
    """Name of a method in verl's registry: prefixed where verl already has a loss of that name."""
    taken = POLICY_LOSS_REGISTRY.get(method)
    return method if taken is None or getattr(taken, "tether_method", None) == method else PREFIX + method


def method_of(name: str) -> Method:
    """The catalogue method behind a verl loss name. Raises UnknownMethodError, ValueError for a loss of verl's own."""
    if is_foreign(name):
        ours = ", ".join(loss_name(method) for method in registry.names())
        raise ValueError(f"policy_loss.loss_mode = {name!r} is a loss of verl's own; those of this package are {ours}")
    return registry.get(name.removeprefix(PREFIX))


def is_foreign(name: str) -> bool:
    """Whether verl has a loss of that name that is not one of the catalogue's."""
    return name in POLICY_LOSS_REGISTRY and not hasattr(POLICY_LOSS_REGISTRY[name], "tether_method")


def requirements(settings: Any) -> Needs:
    """What the loss of these policy-loss settings (dataclass or OmegaConf) needs; a loss of verl's own: nothing."""
    if is_foreign(settings.loss_mode):
        return Needs.SAMPLED
    method = method_of(settings.loss_mode)
    options = getattr(settings, "options", None)
    if OmegaConf.is_config(options):
        options = OmegaConf.to_container(options)
    return method.requires(method.configure(options))


def register_all() -> None:
    """Register every catalogue method with verl; a second call changes nothing."""
    for name in registry.names():
        target = loss_name(name)
        if target not in POLICY_LOSS_REGISTRY:
            register_policy_loss(target)(_policy_loss(registry.get(name)))


def _policy_loss(method: Method) -> Callable[..., tuple[Tensor, dict[str, Any]]]:
    def compute(
        old_log_prob: Tensor,
        log_prob: Tensor,
        advantages: Tensor,
        response_mask: Tensor,
        loss_agg_mode: str = "token-mean",
        config: Any = None,
        rollout_is_weights: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, Any]]:
        if rollout_is_weights is not None:
            raise ValueError(
                f"{method.name} takes the ratio against the rollout policy: set "
                "algorithm.rollout_correction.bypass_mode=True and no rollout_is"
            )
        carried = _CARRIED.get() or Carried()
        settings = getattr(config, "policy_loss", None)
        options = method.configure(getattr(settings, "options", None))
        refuse_idle_keys(method, config)
        mask = as_mask("response_mask", response_mask)
        info = dict(getattr(config, "global_batch_info", None) or {})
        info["loss_scale_factor"] = loss_scale_factor(loss_agg_mode, info, config)
        signals = Signals(
            logp_pi=log_prob,
            logp_mu=old_log_prob,
            advantages=advantages,
            response_mask=mask,
            scope=scope_of(mask, info.get("batch_num_tokens")),
            **carried.signals,
        )
        refuse_what_is_missing(method.name, method.requires(options), signals)
        signals = sanitise(signals)
        # The worker of this package has looked at the whole batch before; elsewhere a call is all that is seen.
        refuse_impossible_samples(signals.logp_mu, mask, f"a call of the loss with {len(mask)} samples")
        coefficient = torch.where(mask, method.coefficient(signals, options), 0.0)
        if carried.metrics is not None:
            carried.metrics.observe(signals, coefficient)
        losses = token_losses(coefficient, log_prob)
        # Not verl's agg_loss: its sequence modes multiply by the mask, and 0 * NaN is NaN.
        loss = aggregate(losses, mask, loss_agg_mode, **info)
        return loss, {} if carried.metrics is not None else _plain_metrics(signals, coefficient)

    compute.__name__ = compute.__qualname__ = f"{method.name}_policy_loss"
    compute.tether_method = method.name  # type: ignore[attr-defined]
    return compute


def _plain_metrics(signals: Signals, coefficient: Tensor) -> dict[str, float]:
    """For runs without our worker: verl averages these over micro-batches, ranks and mini-batches, without weights.

    So only means and shares are given: whatever a name says, verl (workers/utils/losses.py:116) makes of extremes,
    quantiles and counts the mean over micro-batches, which is none of them.
    """
    metrics = TokenMetrics()
    metrics.observe(signals, coefficient)
    return {f"actor/{name}": value for name, value in metrics.averages().items()}
