"""vLLM engines of the tiny world, and how far what they record is from a forward pass of transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from methods.backend.rollout.engines import QUANTIZATIONS
from methods.backend.rollout.sampling import Generation, SamplingParameters
from methods.backend.rollout.vllm_engine import EngineSettings, InProcessEngine, request_seeds

VOCABULARY, END = 45, {2}


def hf_model(folder: Path, dtype: torch.dtype = torch.float32) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="sdpa").eval()


def moved(model: Any, seed: int) -> Any:
    """The same model, each tensor changed by a third of its own spread."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * parameter.std() * 0.3)
    return model


def log_probs(model: Any, prompts: list[list[int]], out: Generation, temperature: float = 1.0) -> torch.Tensor:
    """[N, T, V] of an independent forward pass without cache. The prompts are of one length."""
    ids = torch.cat([torch.tensor(prompts), out.tokens], dim=1)
    with torch.no_grad():
        logits = model(input_ids=ids).logits[:, len(prompts[0]) - 1 : -1].float()
    return torch.log_softmax(logits / temperature, dim=-1)


def mask(out: Generation) -> torch.Tensor:
    return torch.arange(out.tokens.shape[1]) < out.lengths.unsqueeze(1)


def gaps(model: Any, prompts: list[list[int]], out: Generation) -> torch.Tensor:
    """Differences of the sampled tokens' log-probs between what was recorded and `model`, one per token."""
    expected = log_probs(model, prompts, out).gather(-1, out.tokens.unsqueeze(-1)).squeeze(-1)
    return (expected - out.logp).abs()[mask(out)]


def gap(model: Any, prompts: list[list[int]], out: Generation) -> float:
    """The largest of them."""
    return float(gaps(model, prompts, out).max())


def make_engine(folder: Path, dtype: str = "float32", quantization: str = "none") -> InProcessEngine:
    return InProcessEngine(EngineSettings(str(folder), dtype, 9, 64, VOCABULARY, QUANTIZATIONS[quantization]))


def prompts_of(folder: Path) -> list[list[int]]:
    """32 prompts of one length; the last 29 are one and the same."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts = ["7 5 9", "1 2 3", "38 0 12"] + ["21 4 30"] * 29
    return [
        list(tokenizer.apply_chat_template([{"role": "user", "content": text}], tokenize=True, return_dict=False))
        for text in texts
    ]


def gaps_with_experts(folder: Path) -> list[float]:
    """Largest gap after a reload of a mixture whose experts are scaled by 4, and by 0."""
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    size = {"hidden_size": 64, "head_dim": 32, "moe_intermediate_size": 64, "vocab_size": VOCABULARY}
    heads = {"num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "num_experts": 4}
    torch.manual_seed(0)
    config = Qwen3MoeConfig(**size, **heads, num_experts_per_tok=2, tie_word_embeddings=True)
    model = moved(Qwen3MoeForCausalLM(config).eval(), seed=0)
    model.save_pretrained(folder)
    own, prompts = make_engine(folder), [[1, 12, 10, 14, 3]] * 16
    found = []
    for scale in (4.0, 0.0):
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "experts" in name:
                    parameter.mul_(scale)
        own.load(model.state_dict())
        out = own.sample(prompts, SamplingParameters(1.0, 4, 5), END, 0, request_seeds(0, 0, 0, 0, 16))
        found.append(gap(model, prompts, out))
    return found
