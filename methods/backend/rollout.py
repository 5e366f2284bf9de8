"""The Hugging Face rollout inside verl's training worker: same process, same weights path, staleness as a setting."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from verl.utils.torch_dtypes import PrecisionType
from verl.workers.rollout.base import _ROLLOUT_REGISTRY, BaseRollout

from methods.backend.sampling import Generation, SamplingParameters, Share, generator, sample
from methods.backend.staleness import WeightRing, Weights, checksum

NAME = "hf"
TRAINING, VALIDATION = 0, 1


class HFRollout(BaseRollout):
    """`actor_rollout_ref.rollout.name=hf`. Options under `rollout.custom`: top_k (K, 0 for none), lag (>= 0).

    `sampled` tells versions and checksums of the weights behind the latest training rollout and the latest sync.
    """

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, replica_rank: int = -1) -> None:
        super().__init__(config, model_config, device_mesh)
        from transformers import AutoModelForCausalLM

        custom = dict(config.custom or {})
        self.rank = int(os.environ.get("RANK", "0"))
        self.seed = int(custom.get("seed", config.seed))
        self.dtype = PrecisionType.to_dtype(config.dtype)
        self.model = AutoModelForCausalLM.from_pretrained(
            model_config.local_path, config=model_config.hf_config, dtype=self.dtype
        ).eval()
        self.top_k = int(custom.get("top_k", 0))
        vocabulary = self.model.get_output_embeddings().weight.shape[0]
        if not 0 <= self.top_k <= vocabulary:
            raise ValueError(f"rollout.custom.top_k = {self.top_k}: allowed is 0 to the vocabulary size {vocabulary}")
        self.ring = WeightRing(int(custom.get("lag", 0)))
        self.end_ids, self.pad_id = _special_ids(model_config)
        self._loaded: Weights | None = None
        self.sampled: dict[str, int] = {}

    async def resume(self, tags: list[str]) -> None:
        """Nothing to wake up: the model never leaves memory."""

    async def release(self) -> None:
        """Nothing to put to sleep."""

    @torch.no_grad()
    async def update_weights(
        self,
        weights: Iterable[tuple[str, Tensor]],
        wire_format: str = "named_tensors",
        global_steps: int | None = None,
        **_: Any,
    ) -> None:
        """Take a copy of the trainer's weights into the ring, in the rollout's dtype."""
        if wire_format != "named_tensors":
            raise ValueError(f"wire_format = {wire_format!r}: the hf rollout takes 'named_tensors' only")
        tensors = {name: tensor.detach().to("cpu", self.dtype, copy=True) for name, tensor in weights}
        self.ring.push(int(global_steps or 0), tensors)

    def generate(
        self,
        prompts: list[list[int]],
        step: int,
        validate: bool,
        temperature: float,
        share: Share | None = None,
        requests: list[tuple[int, int]] | None = None,
    ) -> Generation:
        """Sample one response per prompt: from the lagged weights for training, from the current for validation.

        share: of the whole batch, when several ranks sample it; the random numbers are the batch's, not the rank's.
        requests: (prompt, sample) of each row, to seed it on its own, whatever else is in the batch.
        """
        weights = self.ring.current if validate else self.ring.sampling
        self._load(weights)
        if not validate:
            # Of the tensors the model really holds, not of what the ring says it gave.
            held = self.model.state_dict()
            self.sampled = {
                "weights/sampled_version": weights.version,
                "weights/sampled_checksum": checksum({name: held[name] for name in weights.tensors}),
                "weights/synced_version": self.ring.current.version,
                "weights/synced_checksum": self.ring.current.checksum,
            }
        purpose = VALIDATION if validate else TRAINING
        return sample(
            self.model,
            prompts,
            SamplingParameters(temperature, self.config.response_length, 0 if validate else self.top_k),
            self.end_ids,
            self.pad_id,
            generator(self.seed, purpose, step, 0)
            if requests is None
            else [generator(self.seed, purpose, step, 1, *request) for request in requests],
            weights.version,
            share,
        )

    def _load(self, weights: Weights) -> None:
        if self._loaded is weights:
            return
        missing, unexpected = self.model.load_state_dict(weights.tensors, strict=False)
        # A tied head is absent from the trainer's named tensors and follows the embedding.
        missing = [name for name in missing if name not in self._tied_names()]
        if missing or unexpected:
            raise RuntimeError(f"weights do not fit the rollout model: missing {missing}, unexpected {unexpected}")
        self._loaded = weights

    def _tied_names(self) -> set[str]:
        return {"lm_head.weight"} if self.model.config.tie_word_embeddings else set()


def _special_ids(model_config: Any) -> tuple[set[int], int]:
    generation = model_config.generation_config
    end = generation.eos_token_id if generation is not None else None
    end = end if end is not None else model_config.hf_config.eos_token_id
    if end is None:
        raise ValueError(f"model {model_config.local_path}: no eos_token_id in its generation or model config")
    pad = model_config.hf_config.pad_token_id
    return set(end if isinstance(end, list | tuple) else [end]), 0 if pad is None else int(pad)


# verl keeps its rollout classes in a plain dict without a register function (workers/rollout/base.py:89).
_ROLLOUT_REGISTRY[(NAME, "async")] = f"{__name__}.{HFRollout.__name__}"
