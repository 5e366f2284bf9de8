"""Precisions of trainer and rollout by the names that settings use. Plain data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Precision:
    """dtype of activations and of the weights as used; scheme of `precision.quantisation` for the matrices, or none."""

    dtype: str
    quantise: str = "none"


_PLAIN = {"fp32": Precision("float32"), "bf16": Precision("bfloat16"), "fp16": Precision("float16")}
# Master weights are always float32. fp8 trains end to end: the forward is quantised, the gradient straight-through.
# Around the products it computes in float32, so that it differs from an fp8 rollout as two engines do; fp8_bf16 has
# bfloat16 there, as FP8 training recipes do, and is the rollout's own forward.
TRAIN_PRECISIONS = _PLAIN | {"fp8": Precision("float32", "fp8"), "fp8_bf16": Precision("bfloat16", "fp8")}
ROLLOUT_PRECISIONS = _PLAIN | {"fp8": Precision("bfloat16", "fp8"), "int8": Precision("bfloat16", "int8")}
