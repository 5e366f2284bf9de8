"""A mixture's experts: fused weights from the per-expert tensors that verl sends, and which experts a token chose."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

_PART = re.compile(r"(?P<block>.*\.experts)\.(?P<expert>\d+)\.(?P<kind>gate|up|down)_proj\.weight")


def fuse(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The inverse of verl's `unfuse_moe_params` (engine/fsdp/utils.py:90), which names weights as vLLM loads them.

    experts.<i>.{gate,up,down}_proj.weight become experts.gate_up_proj [E, 2 * mid, in] and experts.down_proj
    [E, in, mid], the parameters of transformers' modules; other tensors pass through.
    """
    out: dict[str, Tensor] = {}
    parts: dict[str, dict[str, dict[int, Tensor]]] = {}
    for name, tensor in tensors.items():
        found = _PART.fullmatch(name)
        if found is None:
            out[name] = tensor
        else:
            parts.setdefault(found["block"], {}).setdefault(found["kind"], {})[int(found["expert"])] = tensor
    for block, kinds in parts.items():
        gate, up, down = (torch.stack([kinds[kind][i] for i in sorted(kinds[kind])]) for kind in ("gate", "up", "down"))
        out[f"{block}.gate_up_proj"] = torch.cat([gate, up], dim=1)
        out[f"{block}.down_proj"] = down
    return out


def routers(model: nn.Module) -> list[nn.Module]:
    """The routers of transformers' mixtures (their forward returns logits, weights and indices of the experts)."""
    return [m for m in model.modules() if all(hasattr(m, name) for name in ("top_k", "num_experts", "weight"))]


@contextmanager
def record_routing(model: nn.Module) -> Iterator[list[Tensor]]:
    """Collects the experts [tokens, k], in rising order, of each router call while the block runs."""
    chosen: list[Tensor] = []

    def record(_: nn.Module, __: Any, output: tuple[Tensor, Tensor, Tensor]) -> None:
        chosen.append(output[2].detach().sort(-1).values)

    handles = [router.register_forward_hook(record) for router in routers(model)]
    try:
        yield chosen
    finally:
        for handle in handles:
            handle.remove()


def differences(one: Tensor, other: Tensor, mask: Tensor) -> float:
    """Share of (token, layer) whose sets of experts differ: [layers, B, L, k] twice, mask [B, L] of the tokens."""
    differ = (one != other).any(-1)[:, mask]
    return float(differ.float().mean()) if differ.numel() else 0.0
