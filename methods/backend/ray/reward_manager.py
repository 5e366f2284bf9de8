"""The reward of verl's own reward workers (`setting.server`), with the text that the batch manager would give it."""

from __future__ import annotations

import math
from typing import Any

from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager


class TextRewardManager(NaiveRewardManager):
    """`reward.reward_manager.source=importlib`; `rollout.custom.special_tokens` leaves special tokens in the text."""

    def __init__(self, config: Any, tokenizer: Any, *args: Any, **kwargs: Any) -> None:
        custom = config.actor_rollout_ref.rollout.get("custom") or {}
        super().__init__(config, Whole(tokenizer) if custom.get("special_tokens") else tokenizer, *args, **kwargs)

    async def run_single(self, data: Any) -> dict[str, Any]:
        """verl's, but a reward that is no finite number names the sample instead of spoiling the batch."""
        result = await super().run_single(data)
        score = float(result["reward_score"])
        if not math.isfinite(score):
            about = data[0].non_tensor_batch.get("extra_info")
            raise RuntimeError(f"the reward gave {score} for {about}; allowed is a finite number")
        return result


class Whole:
    """A tokenizer that decodes to all of the text: naive.py asks for one without special tokens."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tokenizer, name)

    def decode(self, ids: Any, skip_special_tokens: bool = False) -> str:
        """The text with special tokens, whatever is asked for."""
        return self.tokenizer.decode(ids, skip_special_tokens=False)
