"""What methods declare to need (`Method.requires`) against what a setting or one call of the loss gives them.

Shapes: B sequences, T response tokens, N responses of a training step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from methods.backend.rollout.sampling import generator
from methods.registry import Needs
from methods.signals import ImpossibleSampleError, Scope, Signals

if TYPE_CHECKING:
    from methods.backend.setting import Setting

# Columns of a training batch, jagged over response tokens.
ANCHOR, UNIFORMS = "tether_anchor_log_probs", "tether_uniforms"
# Beside rollout.TRAINING and rollout.VALIDATION: a third stream of random numbers of the same seed.
CONTROL = 2
EPOCHS_KEY = "actor_rollout_ref.actor.ppo_epochs"


def setting_problem(method: str, needs: Needs, setting: Setting, overrides: Sequence[str] = ()) -> str | None:
    """What of a method's needs a setting can't meet, as "field = value: what is allowed"; None when it meets all."""
    if needs & (Needs.TOP_K | Needs.FULL) and setting.top_k == 0:
        return f"setting.top_k = 0: method {method} needs the rollout's top-K log-probs, allowed is >= 1"
    if Needs.MINI_BATCH in needs and (setting.ranks > 1 or setting.micro_batch_rows < setting.mini_batch_rows):
        return (
            f"setting.micro_batch = {setting.micro_batch}, setting.ranks = {setting.ranks}: method {method} looks at "
            f"the whole "
            f"mini-batch of {setting.mini_batch_rows} responses at once; allowed is null and 1"
        )
    if Needs.RECOMPUTED_ANCHOR in needs and setting.mini_batches == 1 and ppo_epochs(overrides) == 1:
        return f"setting.mini_batches = 1: {degenerate(method)}"
    return None


def degenerate(method: str) -> str:
    """A trust region around the weights themselves: the only update of a rollout starts at its centre."""
    return (
        f"method {method} measures the ratio against the recomputed anchor, which is 1 in a rollout's first update, so "
        "that its trust region can never act; allowed is at least 2 updates per rollout (setting.mini_batches, or "
        f"data.train_batch_size over actor.ppo_mini_batch_size, or {EPOCHS_KEY}), or a method whose anchor is the "
        "rollout policy"
    )


def ppo_epochs(overrides: Sequence[str]) -> int:
    """Passes over a rollout: 1 unless an override says otherwise."""
    given = [text.split("=", 1)[1] for text in overrides if text.lstrip("+").startswith(f"{EPOCHS_KEY}=")]
    return int(given[-1]) if given else 1


def vocabulary_problem(method: str, needs: Needs, top_k: int, vocabulary: int) -> str | None:
    """As `setting_problem`, for what depends on the model."""
    if Needs.FULL in needs and top_k != vocabulary:
        return (
            f"top_k = {top_k}: method {method} needs both policies over the whole vocabulary, allowed is its size "
            f"{vocabulary}"
        )
    return None


# (need, what it is, whether signals have it, what to set where they do not)
_REMEDIES: tuple[tuple[Needs, str, Callable[[Signals], bool], str], ...] = (
    (
        Needs.TOP_K,
        "the rollout's top-K log-probs",
        lambda signals: signals.support is not None,
        "set actor_rollout_ref.rollout.custom.top_k >= 1 and train with the tether worker",
    ),
    (
        Needs.FULL,
        "both policies over the whole vocabulary",
        lambda signals: signals.full is not None and signals.sampled is not None,
        "set actor_rollout_ref.rollout.custom.top_k to the vocabulary size and train with the tether worker",
    ),
    (
        Needs.SUM_PI_SQUARED,
        "the collision mass of the current policy",
        lambda signals: signals.sum_pi_squared is not None,
        "train with the tether worker, which takes it from the logits",
    ),
    (
        Needs.RECOMPUTED_ANCHOR,
        "log-probs of the weights before the rollout's first update, beside the rollout's own",
        lambda signals: signals.logp_old is not None,
        "train with the tether worker, which recomputes them (algorithm.rollout_correction.bypass_mode stays True)",
    ),
    (
        Needs.RANDOM,
        "seeded random numbers",
        lambda signals: signals.uniforms is not None,
        "set trainer.v1.trainer_mode to tether_inprocess or tether_ray",
    ),
    (
        Needs.MINI_BATCH,
        "all tokens of a mini-batch in one call",
        lambda signals: signals.scope is Scope.MINI_BATCH,
        "set actor.ppo_micro_batch_size_per_gpu to actor.ppo_mini_batch_size x rollout.n, actor.use_dynamic_bsz to "
        "False, and train on one rank",
    ),
)


def refuse_what_is_missing(method: str, needs: Needs, signals: Signals) -> None:
    """Raises ValueError naming the first need that one call of the loss does not meet, and what to set."""
    for need, what, met, remedy in _REMEDIES:
        if need in needs and not met(signals):
            raise ValueError(f"{method} needs {what}: {remedy}")


def refuse_impossible_batch(data: Any, mini_batch: int, rank: int, ranks: int) -> None:
    """Before any step on a training batch: raises ImpossibleSampleError where a token was sampled at log-prob -inf.

    data: this rank's rows, jagged; mini_batch: responses over all ranks. Names the sample by its place in the batch as
    it was sampled, of which each rank holds an equal share of every mini-batch (`trainer.rank_order`).
    """
    logp_mu, inside = data["old_log_probs"], data["response_mask"].values().bool()
    impossible = (logp_mu.values() == -torch.inf) & inside
    if impossible.any():
        place = int(impossible.nonzero()[0])
        starts = logp_mu.offsets()
        row = int(torch.searchsorted(starts, place, right=True)) - 1
        part, within = divmod(row, mini_batch // ranks)
        sample = part * mini_batch + rank * (mini_batch // ranks) + within
        raise ImpossibleSampleError(sample, place - int(starts[row]), "the training batch")


def scope_of(mask: Tensor, batch_num_tokens: Any) -> Scope:
    """The mini-batch where a call holds all its valid tokens; a call without global counts is all there is."""
    if batch_num_tokens is None or int(batch_num_tokens) == int(mask.sum()):
        return Scope.MINI_BATCH
    return Scope.MICRO_BATCH


def uniforms(seed: int, step: int, rows: int, width: int) -> Tensor:
    """[N, width] float32 in [0, 1): by seed, training step, place of the response in the step's batch, and token."""
    return torch.rand(rows, width, generator=generator(seed, CONTROL, step, 0))
