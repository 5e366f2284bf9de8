"""verl's own vLLM server with what a CPU needs. Importing this imports all of vLLM: for its actor only."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from typing import Any

import numpy as np
from verl.workers.rollout.replica import TokenOutput
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer
from vllm.outputs import RequestOutput
from vllm.sampling_params import RequestOutputKind, SamplingParams

from methods.backend.ray.protocol import REQUEST, SUPPORT, Request
from methods.backend.rollout.base import TRAINING, VALIDATION
from methods.backend.rollout.engines import QUANTIZATIONS
from methods.backend.rollout.vllm_engine import cache_bytes, generation

TOP_K = "tether_top_k"  # key in vLLM's free-form arguments of a request


class VLLMServer(vLLMHttpServer):
    """Adds to verl's server: top-K log-probs, and a seed for each request."""

    engine: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # With 1 vLLM (platforms/cpu.py:310) puts the worker into yet another process.
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        custom = self.config.custom
        self.seed, self.top_k, self.quantization = custom["seed"], custom["top_k"], custom["quantization"]

    def _get_worker_extension_cls(self) -> str:
        return "methods.backend.rollout.vllm_worker.CPUWorkerExtension"

    def _apply_quantization(self) -> tuple[str | None, dict[str, Any]]:
        """verl's `rollout.quantization` means formats for GPUs; ours is `rollout.custom.quantization`."""
        arguments = QUANTIZATIONS[self.quantization]
        return arguments.get("quantization"), dict(arguments.get("hf_overrides", {}))

    def _preprocess_engine_kwargs(self, engine_kwargs: dict[str, Any]) -> None:
        super()._preprocess_engine_kwargs(engine_kwargs)
        config, model = self.config, self.model_config.hf_config
        engine_kwargs |= {
            "distributed_executor_backend": "uni",
            "max_logprobs": self.top_k,
            "kv_cache_dtype": QUANTIZATIONS[self.quantization].get("kv_cache_dtype", "auto"),
            "kv_cache_memory_bytes": cache_bytes(model, config.dtype, config.max_num_seqs, config.max_model_len),
        }

    async def run_server(self, args: Any) -> None:
        """verl's; then requests go through `TopKEngine`."""
        await super().run_server(args)
        self.engine = TopKEngine(self.engine)

    async def generate(
        self, prompt_ids: list[int], sampling_params: Mapping[str, Any], request_id: str, **kwargs: Any
    ) -> TokenOutput:
        """verl's call for one response. Raises KeyError without our agent loop, which says what the request is."""
        parameters = dict(sampling_params)
        request: Request = parameters.pop(REQUEST)
        top_k = 0 if request.validate else self.top_k
        parameters |= {
            "seed": request_seed(self.seed, request),
            "detokenize": False,
            "flat_logprobs": True,
            "output_kind": RequestOutputKind.FINAL_ONLY,
            "extra_args": {TOP_K: top_k},
        }
        output = await super().generate(prompt_ids, parameters, request_id, **kwargs)
        finished = self.engine.finished.pop(request_id)
        if top_k:
            out = generation(finished.outputs[:1], top_k, pad_id=0, version=0)
            assert out.support_ids is not None and out.support_logp is not None
            output.extra_fields[SUPPORT] = (out.support_ids[0], out.support_logp[0])
        return output

    async def load(self, payload: bytes, version: int) -> int:
        """Weights into the engine's process, in verl's order of a sync; returns the checksum of what arrived there."""
        (arrived,) = await self.engine.collective_rpc("load", args=(payload,))
        await self.clear_kv_cache()
        await self.set_global_steps(version)
        return arrived


class TopKEngine:
    """vLLM's engine, asked for top-K log-probs: verl's `generate` (vllm_async_server.py:622) asks for the sampled
    token's only, and returns no others."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.finished: dict[str, RequestOutput] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def generate(self, *, sampling_params: SamplingParams, request_id: str, **kwargs: Any) -> AsyncIterator[Any]:
        sampling_params.logprobs = (sampling_params.extra_args or {}).pop(TOP_K)
        async for output in self._engine.generate(sampling_params=sampling_params, request_id=request_id, **kwargs):
            self.finished[request_id] = output
            yield output


def request_seed(seed: int, request: Request) -> int:
    """32 bits, all that torch's CPU generator looks at. The samples of one prompt never share a seed; two other
    requests of a step do with a chance of one in 2^32."""
    purpose = VALIDATION if request.validate else TRAINING
    path = (purpose, request.step, 1, request.index)
    first = np.random.SeedSequence(entropy=seed, spawn_key=path).generate_state(1, np.uint32)[0]
    return (int(first) + request.sample) % (1 << 32)
