"""Which rollout engines there are and what each can do: plain data and checks, importable without torch or vLLM."""

from __future__ import annotations

import difflib
import importlib.util
from collections.abc import Mapping
from typing import Any

from methods.backend.renamed import hint
from methods.backend.run.model_check import EXPERTS

# Setting's name of an engine -> (verl's `rollout.name`, class).
ENGINES = {
    "hf": ("hf", "methods.backend.rollout.base.HFRollout"),
    "vllm": ("vllm_inprocess", "methods.backend.rollout.vllm_rollout.VLLMRollout"),
}
# The same with a process of its own, for the ray runner.
SERVERS = {
    "hf": ("hf_server", "methods.backend.ray.server.ServerRollout"),
    "vllm": ("tether_vllm", "methods.backend.ray.vllm_server.VLLMServerRollout"),
}
# What a compressed-tensors checkpoint in W8A8 int8 says of itself: one scale a channel, and one a token at run time.
_INT8 = {"num_bits": 8, "type": "int", "symmetric": True}
_INT8_W8A8 = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {**_INT8, "strategy": "channel", "dynamic": False},
            "input_activations": {**_INT8, "strategy": "token", "dynamic": True},
        }
    },
}
# Rollouts in real low precision -> arguments of vLLM's engine.
QUANTIZATIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "fp8_kv": {"kv_cache_dtype": "fp8"},
    "fp8_weights": {"quantization": "fp8_per_channel"},
    # Its weights are quantised by methods.backend.rollout.vllm_weights at every load.
    "int8_w8a8": {"hf_overrides": {"quantization_config": _INT8_W8A8}},
}
# Precisions that the Hugging Face rollout computes in floating point (methods.precision.quantisation).
IMITATED = ("fp8", "int8")
# What vLLM 0.30 accepts by name but does not do on a CPU.
REFUSED = {
    "int8_per_channel_weight_only": "vLLM quantises experts only (quantization/online/int8.py), a dense model runs as "
    "plain bf16, ids and log-probs equal bit for bit",
    "fp8": "vLLM has no kernel for per-tensor fp8 weights on a CPU (_C::static_scaled_fp8_quant is a stub)",
    "fp8_per_tensor": "vLLM has no kernel for per-tensor fp8 weights on a CPU (_C::static_scaled_fp8_quant is a stub)",
    "fp8_per_block": "vLLM's kernel for fp8 block weights needs AMX",
}
NOT_INSTALLED = "vLLM is not installed in this environment; `make vllm` adds it"
# vllm/v1/attention/backends/cpu_attn.py:65; another size passes vLLM's constructor and dies at the first token.
HEAD_SIZES = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)
# What our code reads of free-form dictionaries of verl's configuration, which verl itself never checks.
FREE_FORM = {
    "rollout.custom": (
        "top_k",
        "staleness",
        "seed",
        "quantise",
        "quantization",
        "special_tokens",
        "mask_truncated",
        "skip_flat_groups",
        "rollouts",
    ),
    "fsdp_config.mixed_precision": ("param_dtype", "reduce_dtype", "buffer_dtype", "quantise"),
}


def refuse_unknown(where: str, given: Mapping[str, Any] | None) -> None:
    """Raises ValueError naming the first key of a free-form dictionary that nobody reads, and the likeliest meant."""
    allowed = FREE_FORM[where]
    for name in given or {}:
        if name not in allowed:
            near = difflib.get_close_matches(str(name), allowed, n=1)
            meant = f"; did you mean {near[0]!r}?" if near else "."
            raise ValueError(f"{where}.{name}: unknown key{hint(str(name))}{meant} Allowed are {', '.join(allowed)}")


def refuse_corrections(settings: Mapping[str, Any]) -> None:
    """Raises ValueError where verl's rollout correction would weigh or reject what our losses take from the rollout."""
    if not settings.get("bypass_mode"):
        raise ValueError(
            f"algorithm.rollout_correction.bypass_mode = {settings.get('bypass_mode')}: allowed is True, the ratio is "
            "against the rollout policy"
        )
    for name in ("rollout_is", "rollout_rs"):
        if settings.get(name) is not None:
            raise ValueError(
                f"algorithm.rollout_correction.{name} = {settings[name]!r}: allowed is null, a method's own ratio is "
                "against the rollout policy"
            )


def problem(engine: str, quantization: str, precision: str) -> str | None:
    """What is wrong with these settings of a setting, as "field = value: what is allowed"; None when nothing is."""
    if engine not in ENGINES:
        return f"rollout_engine = {engine!r}: allowed are {', '.join(ENGINES)}"
    if engine == "vllm" and precision in IMITATED:
        return f"rollout_precision = {precision!r}: imitated by rollout_engine = 'hf' only; see rollout_quantization"
    where = f"rollout_quantization = {quantization!r}"
    if quantization in REFUSED:
        return f"{where}: refused, {REFUSED[quantization]}; allowed are {', '.join(QUANTIZATIONS)}"
    if quantization not in QUANTIZATIONS:
        return f"{where}: allowed are {', '.join(QUANTIZATIONS)}"
    if quantization != "none" and engine != "vllm":
        return f"{where}: allowed with rollout_engine = 'vllm' only, not {engine!r}"
    if quantization == "fp8_weights" and precision != "bf16":
        return f"{where}: allowed with rollout_precision = 'bf16' only, not {precision!r}"
    return None


def vllm_installed() -> bool:
    """Whether this environment has vLLM."""
    return importlib.util.find_spec("vllm") is not None


def vllm_problem(model_config: Mapping[str, Any], installed: bool | None = None) -> str | None:
    """Why vLLM on this machine can't serve a model with this config.json; None when it can."""
    if not (vllm_installed() if installed is None else installed):
        return f"rollout_engine = 'vllm': {NOT_INSTALLED}"
    if any(model_config.get(name) for name in EXPERTS):
        # Read again after its first load, the same checkpoint moved log-probs by 1 (a test); dense layers are right.
        return "rollout_engine = 'vllm': vLLM reloads experts wrongly on a CPU; allowed is a dense model"
    size = model_config.get("head_dim") or model_config["hidden_size"] // model_config["num_attention_heads"]
    if size not in HEAD_SIZES:
        sizes = ", ".join(map(str, HEAD_SIZES))
        return f"rollout_engine = 'vllm': the model's head size is {size}, vLLM's CPU attention allows {sizes}"
    return None
