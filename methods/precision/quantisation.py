"""Fake quantisation W8A8 with straight-through gradients: a model computes as an 8-bit engine does, in floating point.

A slice x (one output channel of a weight, one token of an activation) is replaced by codes on the 8-bit grid times one
scale, both taken in float32:

    s = max|x| / Q          (s = 1 where max|x| = 0 or max|x| / Q underflows, so a scale is never 0)
    fp8:  q(x) = s · e4m3(clip(x / s, -448, 448)),    Q = 448    round to nearest even on float8_e4m3fn
    int8: q(x) = s · round(clip(x / s, -127, 127)),   Q = 127    symmetric, half to even; the code -128 is not used
    y = q(x) q(W)ᵀ + b      accumulated in float32, rounded once to the dtype of x

That is the arithmetic of the engines' W8A8 kernels (scales per output channel, and per token as they come). The
gradient is straight-through: dy/dx = q(W), dy/dW = q(x), as if q had slope 1, for clipped and unclipped alike (with
these scales nothing is clipped but by rounding). Not quantised, as in the engines: embeddings, lm_head, norms, the
router, attention's own products and the key-value cache.

Shapes: n slices of length in; W: [out, in], or [experts, out, in].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# lm_head is left alone by every engine's recipe; the gates are the routers of mixtures of experts.
NOT_QUANTISED = ("lm_head", "gate", "shared_expert_gate")


@dataclass(frozen=True)
class Scheme:
    """largest: Q, the largest code; dtype: of the codes."""

    name: str
    largest: float
    dtype: torch.dtype


SCHEMES = {
    "fp8": Scheme("fp8", 448.0, torch.float8_e4m3fn),
    "int8": Scheme("int8", 127.0, torch.int8),
}


def scheme_named(name: str) -> Scheme:
    """Raises ValueError for an unknown scheme."""
    if name not in SCHEMES:
        raise ValueError(f"quantisation scheme {name!r}: allowed are {', '.join(SCHEMES)}")
    return SCHEMES[name]


def quantise(x: Tensor, scheme: Scheme) -> tuple[Tensor, Tensor]:
    """Codes [..., in] in the scheme's dtype and scales [..., 1] float32, one per slice of the last axis."""
    values = x.detach().float()
    scales = values.abs().amax(-1, keepdim=True) / scheme.largest
    # NaN and infinity stay in the scale, so that they come out as such; an int8 code could not hold them.
    scales = torch.where(scales == 0, 1.0, scales)
    codes = (values / scales).clamp(-scheme.largest, scheme.largest)
    return (codes if scheme.dtype.is_floating_point else codes.round()).to(scheme.dtype), scales


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scheme: Scheme) -> Tensor:
        codes, scales = quantise(x, scheme)
        return codes.float() * scales

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        # Autograd casts to the dtype of the input, which may be narrower than float32.
        return gradients[0], None


def fake_quantise(x: Tensor, scheme: Scheme) -> Tensor:
    """q(x) of the module's docstring, [..., in] float32; its gradient is the identity."""
    # Not x + (q(x) - x).detach(): the sum rounds, and then the values are no longer on the grid.
    return _StraightThrough.apply(x, scheme)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, scheme: Scheme) -> Tensor:
    """y of the module's docstring: x [..., in], weight [out, in], bias [out] or None; [..., out] in the dtype of x."""
    # Autocast would round the codes' products to its dtype before they are summed.
    with torch.autocast(x.device.type, enabled=False):
        product = F.linear(fake_quantise(x, scheme), fake_quantise(weight, scheme))
        return (product if bias is None else product + bias.float()).to(x.dtype)


class QuantisedLinear(nn.Linear):
    """An nn.Linear whose forward computes W8A8; parameters, names and state dict are those of nn.Linear."""

    scheme: Scheme

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias, self.scheme)


class QuantisedExperts:
    """Forward of a mixture's fused experts in W8A8: gate_up_proj [E, 2 * mid, in], down_proj [E, in, mid].

    Takes the place of the forward of transformers' experts classes (tokens [N, in], experts and weights [N, k]).
    """

    scheme: Scheme
    gate_up_proj: nn.Parameter
    down_proj: nn.Parameter

    def forward(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        up, down = self.gate_up_proj, self.down_proj
        with torch.autocast(hidden_states.device.type, enabled=False):
            tokens, weights = fake_quantise(hidden_states, self.scheme), fake_quantise(up, self.scheme)
            lower = fake_quantise(down, self.scheme)
            out = torch.zeros_like(hidden_states, dtype=torch.float32)
            for expert in top_k_index.unique().tolist():
                rows, places = torch.where(top_k_index == expert)
                # Between the two products an engine holds the dtype of its activations.
                gate_up = F.linear(tokens[rows], weights[expert]).to(hidden_states.dtype)
                middle = self._apply_gate(gate_up)  # type: ignore[attr-defined]
                part = F.linear(fake_quantise(middle, self.scheme), lower[expert]).to(hidden_states.dtype)
                out = out.index_add(0, rows, (part * top_k_weights[rows, places, None]).float())
        return out.to(hidden_states.dtype)


def quantise_model(model: nn.Module, scheme: str) -> list[str]:
    """Make a Hugging Face model compute W8A8 in every Linear but the head, and in fused experts; names of those.

    Only the class of these modules changes (as FSDP2 does it too), never a parameter: optimiser, state dict and
    sharding see the model as before, and the forward quantises whatever weights it finds, unsharded and cast.
    Raises ValueError for an unknown scheme, a model that is quantised already, and weights this cannot cover.
    """
    chosen = scheme_named(scheme)
    if quantised_modules(model):
        raise ValueError(f"the model is quantised already ({scheme_of(model)}), asked for {scheme}")
    names = []
    for name, module in model.named_modules():
        if name.rpartition(".")[2] in NOT_QUANTISED:
            continue
        if _is_experts(module):
            kind: type = type(f"Quantised{type(module).__name__}", (QuantisedExperts, type(module)), {})
        elif type(module) is nn.Linear:
            kind = QuantisedLinear
        elif any(parameter.ndim > 2 for parameter in module.parameters(recurse=False)):
            raise ValueError(f"{name} ({type(module).__name__}) has weights of more than two axes of an unknown layout")
        else:
            continue
        module.__class__ = kind
        module.scheme = chosen  # type: ignore[assignment]
        names.append(name)
    if not names:
        raise ValueError(f"{type(model).__name__} has no module that quantisation covers")
    return names


def quantised_modules(model: nn.Module) -> dict[str, str]:
    """Scheme by name of each quantised module."""
    found = (QuantisedLinear, QuantisedExperts)
    return {name: module.scheme.name for name, module in model.named_modules() if isinstance(module, found)}


def scheme_of(model: nn.Module) -> str:
    """The scheme a model computes in, or "none"; what runs, not what was asked for."""
    return "+".join(sorted(set(quantised_modules(model).values()))) or "none"


def _is_experts(module: nn.Module) -> bool:
    weights = dict(module.named_parameters(recurse=False))
    fused = set(weights) == {"gate_up_proj", "down_proj"} and all(weight.ndim == 3 for weight in weights.values())
    # Biases or a transposed layout (gpt-oss) would need another forward; they end in the refusal above.
    return fused and hasattr(module, "_apply_gate") and not getattr(module, "is_transposed", False)
