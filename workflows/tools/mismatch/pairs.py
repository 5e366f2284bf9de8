"""Every pair of trainer and rollout, one real worker after the other.

The Hugging Face rollout in bfloat16 samples once. Then each Hugging Face rollout decodes these tokens with its
key-value cache (log mu), and each trainer's engine runs them in a forward pass (log pi), as they do in a training. vLLM
records log-probs of tokens that it samples itself, so that each of its precisions has tokens of its own, and every
trainer runs these too: the setting of the DPPO paper's Figure 2 (arXiv 2602.04879) [F]. All hold the same weights.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

from methods.backend.precisions import ROLLOUT_PRECISIONS, TRAIN_PRECISIONS
from workflows.tools.mismatch.numbers import gap, profile_of
from workflows.tools.mismatch.policies import (
    Rollout,
    Settings,
    Tokens,
    Trainer,
    force_tokens,
    sample_tokens,
    trainer_policy,
    worker,
)

SAMPLER = "bf16"
# vLLM's own arithmetic below bfloat16 (methods.backend.rollout.engines.QUANTIZATIONS): name in the table -> setting.
VLLM = {"bf16": "none", "fp8": "fp8_weights", "fp8_cache": "fp8_kv", "int8": "int8_w8a8"}
ROLLOUTS = {"hf": list(ROLLOUT_PRECISIONS), "vllm": list(VLLM)}
Row = dict[str, Any]


def measure(settings: Settings) -> tuple[list[Row], list[Row]]:
    """One row per trainer, engine and rollout, in this order; and its profile's rows. Raises ConfigError."""
    own = {name: of_vllm(settings, name) for name in VLLM} if "vllm" in settings.engines else {}
    # The sampler's precision comes first, since its tokens are what all others are asked about.
    names = [SAMPLER, *(name for name in ROLLOUT_PRECISIONS if name != SAMPLER)] if "hf" in settings.engines else []
    tokens: Tokens | None = None
    trainers: dict[str, Trainer] = {}
    rollouts: dict[str, Rollout] = {}
    rows: list[Row] = []
    profiles: list[Row] = []

    def compare(train: str, engine: str, name: str, pi: Trainer, mu: Rollout) -> None:
        pair = {"train": train, "engine": engine, "rollout": name}
        rows.append(pair | gap(pi, mu))
        profiles.extend(pair | row for row in profile_of(pi, mu))

    def visit(train: str | None, rollout: str | None) -> None:
        nonlocal tokens
        with worker(settings, train or SAMPLER, rollout_precision=rollout or SAMPLER) as (built, prompts):
            if rollout is not None:
                tokens = tokens or sample_tokens(built.rollout, prompts)[0]
                rollouts[rollout] = force_tokens(built.rollout, tokens)
            if train is not None:
                for name, (drawn, mu) in own.items():
                    compare(train, "vllm", name, trainer_policy(built.actor.engine, drawn), mu)
            if train is not None and tokens is not None:
                # Kept whole, since later workers' rollouts have other candidates.
                trainers[train] = trainer_policy(built.actor.engine, tokens)

    for train, rollout in zip_longest(TRAIN_PRECISIONS, names):
        visit(train, rollout)
    for train, pi in trainers.items():
        for name, mu in rollouts.items():
            compare(train, "hf", name, pi, mu)
    return sorted(rows, key=_place), sorted(profiles, key=_place)


def _place(row: Row) -> tuple[int, int, int]:
    train, engine = list(TRAIN_PRECISIONS).index(row["train"]), list(ROLLOUTS).index(row["engine"])
    return train, engine, ROLLOUTS[row["engine"]].index(row["rollout"])


def of_vllm(settings: Settings, name: str) -> tuple[Tokens, Rollout]:
    """What vLLM in one of its precisions samples, and what it says of that."""
    chosen = {"rollout_engine": "vllm", "rollout_precision": SAMPLER, "rollout_quantization": VLLM[name]}
    with worker(settings, next(iter(TRAIN_PRECISIONS)), **chosen) as (built, prompts):
        found = sample_tokens(built.rollout, prompts)
        built.rollout.engine.close()
    return found
