"""Keys of verl's actor configuration that this package's losses need, or that would do nothing in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from verl.workers.config import ActorConfig, PolicyLossConfig

from methods.registry import Method

ACTOR, LOSS = "actor_rollout_ref.actor", "actor_rollout_ref.actor.policy_loss"
SCALED_MODE = "seq-mean-token-sum-norm"
# verl's key -> options of ours, of which a method that has one takes it in the key's place.
_ACTOR_KEYS: dict[str, tuple[str, ...]] = {
    "clip_ratio": ("eps_low", "eps_high", "delta", "eps"),
    "clip_ratio_low": ("eps_low", "delta"),
    "clip_ratio_high": ("eps_high", "delta"),
    "clip_ratio_c": ("dual_clip", "ratio_cap"),
    "tau_pos": ("tau_pos",),
    "tau_neg": ("tau_neg",),
}
_LOSS_KEYS: dict[str, tuple[str, ...]] = {
    "dro_beta": ("beta",),
    "clip_cov_ratio": (),
    "clip_cov_lb": (),
    "clip_cov_ub": (),
    "kl_cov_ratio": (),
    "ppo_kl_coef": (),
}
_DEFAULTS = {kind: {field.name: field.default for field in fields(kind)} for kind in (ActorConfig, PolicyLossConfig)}


def refuse_idle_keys(method: Method, config: Any) -> None:
    """Raises ValueError where verl's actor configuration sets a key of verl's own losses, which this one does not read.

    A key at verl's default is not set: the method's own default, its paper's, holds. Nor is null.
    """
    idle = [
        *_set(config, ActorConfig, _ACTOR_KEYS, ACTOR),
        *_set(getattr(config, "policy_loss", None), PolicyLossConfig, _LOSS_KEYS, LOSS),
    ]
    if not idle:
        return
    own = [field.name for field in fields(method.config_type)]
    wanted = list(dict.fromkeys(name for _, options in idle for name in options if name in own))
    given = ", ".join(text for text, _ in idle)
    if wanted:
        remedy = f"set {' and '.join(f'+{LOSS}.options.{name}' for name in wanted)} in its place, with {_target()}"
    elif own:
        remedy = f"its own options, under {LOSS}.options with {_target()}, are {', '.join(own)}"
    else:
        remedy = "it has no options"
    raise ValueError(f"{given}: method {method.name} reads no such key; leave it at verl's default, {remedy}")


def loss_scale_factor(mode: str, info: Mapping[str, Any], config: Any) -> float | None:
    """The horizon of `seq-mean-token-sum-norm`, of this call's global batch info or the actor's configuration.

    Raises ValueError where that mode has none: it would divide by the padded width of each batch.
    """
    given = info.get("loss_scale_factor")
    if given is None:
        given = getattr(config, "loss_scale_factor", None)
    if mode == SCALED_MODE and given is None:
        raise ValueError(
            f"{ACTOR}.loss_scale_factor = None: loss_agg_mode = {mode} divides by it, and without it by the padded "
            "width of each batch; allowed is a number > 0, such as data.max_response_length"
        )
    return given


def _target() -> str:
    return f"{LOSS}._target_=methods.backend.loss.TetherPolicyLossConfig"


def _set(config: Any, kind: type, keys: dict[str, tuple[str, ...]], where: str) -> list[tuple[str, tuple[str, ...]]]:
    """(key = value, our options) of the keys that differ from verl's default."""
    found = []
    for key, options in keys.items():
        default = _DEFAULTS[kind].get(key)
        value = getattr(config, key, default)
        if value is not None and value != default:
            found.append((f"{where}.{key} = {value!r}", options))
    return found
