"""Weights as vLLM on a CPU takes them: complete, with the tied head by name, and in int8 where that is asked for.

Knows nothing of verl; imports vLLM only where a model is about to be built.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from methods.backend.rollout.engines import QUANTIZATIONS

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
INT8_MAX = 127


class WeightFormat:
    """From the trainer's named tensors to those that vLLM's model of this configuration loads."""

    def __init__(self, config: Any, engine_arguments: Mapping[str, Any]) -> None:
        from transformers import AutoModelForCausalLM

        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
        self.names = set(model.state_dict())
        self.tied = bool(config.tie_word_embeddings)
        self.matrices: set[str] = set()
        if engine_arguments.get("hf_overrides") == QUANTIZATIONS["int8_w8a8"]["hf_overrides"]:
            linear = (name for name, module in model.named_modules() if isinstance(module, nn.Linear))
            self.matrices = {f"{name}.weight" for name in linear} - {HEAD}

    def __call__(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """All of the model's tensors, int8 matrices with their scales. Raises RuntimeError where names don't fit."""
        given = dict(tensors)
        if self.tied and HEAD not in given and EMBEDDING in given:
            given[HEAD] = given[EMBEDDING]
        missing, unexpected = sorted(self.names - set(given)), sorted(set(given) - self.names)
        if missing or unexpected:
            raise RuntimeError(f"weights do not fit the rollout model: missing {missing}, unexpected {unexpected}")
        for name in self.matrices:
            given[name], given[f"{name}_scale"] = int8_rows(given[name])
        return given


def int8_rows(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """[out, in] to int8 and float32 scales [out, 1]: symmetric, to the nearest, one scale for each output channel."""
    rows = matrix.float()
    scales = (rows.abs().amax(1, keepdim=True) / INT8_MAX).clamp(min=torch.finfo(torch.float32).tiny)
    return (rows / scales).round().to(torch.int8), scales


def keep_int8_scales() -> None:
    """Let int8 layers hold the scales that oneDNN reads. To be called before vLLM builds a model.

    A layer's oneDNN handle has the address of its scales (kernels/linear/scaled_mm/cpu.py:132), and a reload copies
    them elsewhere and drops them (model_loader/reload/layerwise.py:400): the handle would read freed memory, NaN.
    """
    from vllm.model_executor.kernels.linear.scaled_mm.cpu import CPUInt8ScaledMMLinearKernel as Kernel

    process = Kernel.process_weights_for_onednn
    if hasattr(process, "__wrapped__"):
        return

    def keeping(self: Any, layer: nn.Module) -> None:
        process(self, layer)
        self.kept_scales = getattr(layer, self.layer_param_names[1])

    keeping.__wrapped__ = process  # type: ignore[attr-defined]
    Kernel.process_weights_for_onednn = keeping
