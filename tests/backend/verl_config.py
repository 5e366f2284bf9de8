"""verl's own actor configuration, as small as it gets."""

from __future__ import annotations

from typing import Any

from verl.workers.config import FSDPActorConfig


def actor_config(policy_loss: Any, mode: str = "token-mean", **changes: Any) -> FSDPActorConfig:
    """Mini-batches of 2 rows; `changes` are fields such as clip_ratio_low."""
    return FSDPActorConfig(
        strategy="fsdp2",
        rollout_n=1,
        ppo_mini_batch_size=2,
        ppo_micro_batch_size_per_gpu=2,
        loss_agg_mode=mode,
        entropy_coeff=0.0,
        policy_loss=policy_loss,
        **changes,
    )
