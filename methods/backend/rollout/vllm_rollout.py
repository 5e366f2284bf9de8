"""vLLM as the rollout inside verl's training worker, with the weight ring and support of the Hugging Face one."""

from __future__ import annotations

from typing import Any

from methods.backend.rollout.base import RingRollout, SamplingCall
from methods.backend.rollout.engines import QUANTIZATIONS
from methods.backend.rollout.sampling import Generation, Share
from methods.backend.rollout.staleness import Weights
from methods.backend.rollout.vllm_engine import EngineSettings, InProcessEngine, request_seeds


class VLLMRollout(RingRollout):
    """`actor_rollout_ref.rollout.name=vllm_inprocess`. A further option under `rollout.custom`: quantization."""

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, replica_rank: int = -1) -> None:
        super().__init__(config, model_config, device_mesh, replica_rank)
        self.quantization = str(dict(config.custom or {}).get("quantization", "none"))
        self.engine = InProcessEngine(
            EngineSettings(
                model=model_config.local_path,
                dtype=str(self.dtype).removeprefix("torch."),
                max_length=config.prompt_length + config.response_length,
                max_sequences=config.max_num_seqs,
                top_k=self.top_k,
                extra=QUANTIZATIONS[self.quantization],
            )
        )

    def details(self) -> dict[str, Any]:
        import vllm

        return {"vllm": vllm.__version__, "quantization": self.quantization}

    def _load(self, weights: Weights) -> None:
        self.engine.load(weights.tensors)

    def _held(self, weights: Weights) -> int:
        # vLLM repacks linear layers and keeps no tensor that could be read back; the tests compare log-probs instead.
        return weights.checksum

    def _sample(self, call: SamplingCall) -> Generation:
        if call.requests is not None:
            raise NotImplementedError("requests are seeded one by one in a server only: setting.server = True")
        prompts, share = call.prompts, call.share or Share(0, len(call.prompts))
        # The seeds are the batch's, so that tokens do not depend on how many ranks sample it.
        seeds = request_seeds(self.seed, call.purpose, call.step, 0, share.total)
        seeds = seeds[share.start : share.start + len(prompts)]
        return self.engine.sample(prompts, call.parameters, self.end_ids, self.pad_id, seeds, call.version)
