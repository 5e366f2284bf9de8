"""Rollouts inside verl's training worker: same process, same weights path, staleness as a setting."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from verl.utils.torch_dtypes import PrecisionType
from verl.workers.rollout.base import _ROLLOUT_REGISTRY, BaseRollout

from methods.backend.experts import fuse
from methods.backend.rollout.engines import ENGINES, SERVERS, refuse_unknown
from methods.backend.rollout.sampling import Generation, SamplingParameters, Share, generator, sample
from methods.backend.rollout.staleness import WeightRing, Weights, checksum
from methods.precision.quantisation import quantise_model, scheme_of

TRAINING, VALIDATION = 0, 1


@dataclass(frozen=True)
class SamplingCall:
    """One call of `generate`, as an engine needs it. purpose: TRAINING or VALIDATION; version: of the weights."""

    prompts: list[list[int]]
    parameters: SamplingParameters
    purpose: int
    step: int
    version: int
    share: Share | None
    requests: list[tuple[int, int]] | None


class RingRollout(BaseRollout):
    """What every rollout here shares: settings under `rollout.custom`, seed, weight ring, and whose weights sample.

    Options: top_k (K, 0 for none), staleness (>= 0), seed. `sampled` tells versions and checksums of the weights
    behind the latest training rollout and the latest sync. An engine defines `_load`, `_held` and `_sample`.
    """

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, replica_rank: int = -1) -> None:
        super().__init__(config, model_config, device_mesh)
        custom = dict(config.custom or {})
        refuse_unknown("rollout.custom", custom)
        for name, off in (("top_p", (None, 1, 1.0)), ("top_k", (None, -1, 0))):
            if config.get(name) not in off:
                # Rollout probabilities would be renormalised over the kept set, the trainer's are not.
                raise ValueError(
                    f"rollout.{name} = {config.get(name)}: truncated sampling biases every ratio; leave it off"
                )
        self.rank = int(os.environ.get("RANK", "0"))
        self.seed = int(custom.get("seed", config.seed))
        self.dtype = PrecisionType.to_dtype(config.dtype)
        self.top_k = int(custom.get("top_k", 0))
        self.ring = WeightRing(int(custom.get("staleness", 0)))
        self.end_ids, self.pad_id = special_ids(model_config)
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
            raise ValueError(f"wire_format = {wire_format!r}: this rollout takes 'named_tensors' only")
        tensors = {name: tensor.detach().to("cpu", self.dtype, copy=True) for name, tensor in weights}
        self.ring.push(int(global_steps or 0), fuse(tensors))

    def generate(
        self,
        prompts: list[list[int]],
        step: int,
        validate: bool,
        temperature: float,
        share: Share | None = None,
        requests: list[tuple[int, int]] | None = None,
    ) -> Generation:
        """Sample one response per prompt: from the stale weights for training, from the current for validation.

        share: of the whole batch, when several ranks sample it; the random numbers are the batch's, not the rank's.
        requests: (prompt, sample) of each row, to seed it on its own, whatever else is in the batch.
        """
        weights = self.ring.current if validate else self.ring.sampling
        self._use(weights)
        if not validate:
            self.sampled = self._account(weights, self._held(weights))
        parameters = SamplingParameters(temperature, self.config.response_length, 0 if validate else self.top_k)
        purpose = VALIDATION if validate else TRAINING
        return self._sample(SamplingCall(prompts, parameters, purpose, step, weights.version, share, requests))

    def _account(self, weights: Weights, held: int) -> dict[str, int]:
        """What `sampled` says. held: checksum of the weights that sample."""
        return {
            "weights/sampled_version": weights.version,
            "weights/sampled_checksum": held,
            "weights/synced_version": self.ring.current.version,
            "weights/synced_checksum": self.ring.current.checksum,
        }

    def _use(self, weights: Weights) -> None:
        """Load unless loaded; a load that fails half-way leaves nothing that could pass for loaded."""
        if self._loaded is not weights:
            self._loaded = None
            self._load(weights)
            self._loaded = weights

    def precision(self) -> dict[str, str]:
        """What the engine computes in: dtype, and the scheme of `methods.precision.quantisation` that imitates less."""
        return {"dtype": str(self.dtype).removeprefix("torch."), "quantise": "none"}

    def details(self) -> dict[str, Any]:
        """What a run's manifest should know about this engine."""
        return {}

    def _load(self, weights: Weights) -> None:
        raise NotImplementedError

    def _held(self, weights: Weights) -> int:
        """Checksum of the weights that sample."""
        raise NotImplementedError

    def _sample(self, call: SamplingCall) -> Generation:
        raise NotImplementedError


class HFRollout(RingRollout):
    """`actor_rollout_ref.rollout.name=hf`: a Hugging Face model of its own beside the trainer's.

    Further option under `rollout.custom`: quantise (none, fp8 or int8: W8A8 by `methods.precision.quantisation`).
    """

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, replica_rank: int = -1) -> None:
        super().__init__(config, model_config, device_mesh, replica_rank)
        from transformers import AutoModelForCausalLM

        self.model = AutoModelForCausalLM.from_pretrained(
            model_config.local_path, config=model_config.hf_config, dtype=self.dtype
        ).eval()
        quantise = dict(config.custom or {}).get("quantise", "none")
        if quantise != "none":
            quantise_model(self.model, quantise)
        vocabulary = self.model.get_output_embeddings().weight.shape[0]
        if not 0 <= self.top_k <= vocabulary:
            raise ValueError(f"rollout.custom.top_k = {self.top_k}: allowed is 0 to the vocabulary size {vocabulary}")

    def precision(self) -> dict[str, str]:
        """What the model computes in."""
        return {"dtype": str(self.model.dtype).removeprefix("torch."), "quantise": scheme_of(self.model)}

    def sampling_model(self) -> Any:
        """The model with the weights that rollouts for training are sampled from."""
        self._use(self.ring.sampling)
        return self.model

    def _load(self, weights: Weights) -> None:
        missing, unexpected = self.model.load_state_dict(weights.tensors, strict=False)
        # A tied head is absent from the trainer's named tensors and follows the embedding.
        missing = [name for name in missing if name not in self._tied_names()]
        if missing or unexpected:
            raise RuntimeError(f"weights do not fit the rollout model: missing {missing}, unexpected {unexpected}")

    def _held(self, weights: Weights) -> int:
        # Of the tensors the model really holds, not of what the ring says it gave.
        held = self.model.state_dict()
        return checksum({name: held[name] for name in weights.tensors})

    def _sample(self, call: SamplingCall) -> Generation:
        seeds = (self.seed, call.purpose, call.step)
        random: torch.Generator | list[torch.Generator] = generator(*seeds, 0)
        if call.requests is not None:
            random = [generator(*seeds, 1, *request) for request in call.requests]
        ends, pad = self.end_ids, self.pad_id
        return sample(self.model, call.prompts, call.parameters, ends, pad, random, call.version, share=call.share)

    def _tied_names(self) -> set[str]:
        return {"lm_head.weight"} if self.model.config.tie_word_embeddings else set()


def special_ids(model_config: Any) -> tuple[set[int], int]:
    """(end ids, padding id) of a verl model config. Raises ValueError without an end."""
    generation = model_config.generation_config
    end = generation.eos_token_id if generation is not None else None
    end = end if end is not None else model_config.hf_config.eos_token_id
    if end is None:
        raise ValueError(f"model {model_config.local_path}: no eos_token_id in its generation or model config")
    pad = model_config.hf_config.pad_token_id
    return set(end if isinstance(end, list | tuple) else [end]), 0 if pad is None else int(pad)


# verl keeps its rollout classes in a plain dict without a register function (workers/rollout/base.py:89).
for _name, _class in (*ENGINES.values(), *SERVERS.values()):
    _ROLLOUT_REGISTRY[(_name, "async")] = _class
