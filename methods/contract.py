"""The contract of a method: it sees the signals that it asked for, and returns one detached, finite number a token.

Every path to a coefficient (losses, token records, replay, curves) goes through `Method.coefficient`, which holds a
method to it. Shapes: B sequences, T response tokens.
"""

from __future__ import annotations

from enum import Flag, auto
from functools import cache
from typing import Any, NoReturn

import torch
from torch import Tensor

from methods.signals import Signals


class Needs(Flag):
    """What a method must be given beyond the sampled token's log-probs and the advantage."""

    SAMPLED = 0
    TOP_K = auto()
    SUM_PI_SQUARED = auto()
    FULL = auto()
    RECOMPUTED_ANCHOR = auto()
    MINI_BATCH = auto()
    RANDOM = auto()


# Field of `Signals` -> the needs that bring it; one of them is enough. Fields that are not here are always there.
BRINGS: dict[str, Needs] = {
    "support": Needs.TOP_K,
    "full": Needs.FULL,
    "sum_pi_squared": Needs.SUM_PI_SQUARED,
    "entropy": Needs.SUM_PI_SQUARED,  # of the same pass over the vocabulary
    "logp_old": Needs.RECOMPUTED_ANCHOR,
    "uniforms": Needs.RANDOM,
    "vocab_size": Needs.TOP_K | Needs.FULL | Needs.SUM_PI_SQUARED,
    "sampled": Needs.TOP_K | Needs.FULL | Needs.SUM_PI_SQUARED,
}


class MethodError(ValueError):
    """A method read what it did not ask for, or returned no coefficient; the message names the method."""


def visible(method: str, needs: Needs, signals: Signals) -> Signals:
    """The signals with what the needs do not bring hidden: reading a hidden field raises MethodError."""
    view = _view(method, needs)
    return view(**{name: getattr(signals, name) for name in view.__dataclass_fields__})


@cache
def _view(method: str, needs: Needs) -> type[Signals]:
    """A kind of `Signals` without the fields that the needs do not bring; dataclasses.replace works on it."""
    hidden = {name: brings for name, brings in BRINGS.items() if not brings & needs}
    shown = {name: field for name, field in Signals.__dataclass_fields__.items() if name not in hidden}

    def described(self: Signals) -> str:
        return f"Signals({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    members: dict[str, Any] = {name: _refusing(method, name, brings) for name, brings in hidden.items()}
    return type("Signals", (Signals,), {**members, "__dataclass_fields__": shown, "__repr__": described})


def _refusing(method: str, name: str, brings: Needs) -> property:
    allowed = " or ".join(f"Needs.{need.name}" for need in brings)

    def read(_: Signals) -> NoReturn:
        raise MethodError(f"method {method} reads signals.{name}, which it does not ask for: add needs={allowed}")

    # The setter swallows the default that the dataclass's __init__ assigns.
    return property(read, lambda _, value: None)


def checked(method: str, g: Any, signals: Signals) -> Tensor:
    """g itself, where it is a coefficient. Raises MethodError: "method X returned ..., expected ..."."""
    shape = list(signals.response_mask.shape)
    expected = f"expected a float tensor [B, T] = {shape}"
    if not isinstance(g, Tensor):
        shown = repr(g) if g is None or isinstance(g, bool | int | float) else f"a {type(g).__name__}"
        raise MethodError(f"method {method} returned {shown}, {expected}")
    if list(g.shape) != shape:
        raise MethodError(f"method {method} returned a tensor of shape {list(g.shape)}, {expected}")
    if not g.is_floating_point() or torch.promote_types(g.dtype, torch.float32) != g.dtype:
        raise MethodError(f"method {method} returned a tensor of {g.dtype}, {expected} of float32 or float64")
    if g.requires_grad:
        raise MethodError(
            f"method {method} returned a tensor that requires a gradient, {expected} without: the loss is -g log pi "
            "with g held fixed"
        )
    bad = ~torch.isfinite(g) & signals.response_mask.bool()
    if bad.any():
        i, t = (int(place) for place in bad.nonzero()[0])
        inputs = ", ".join(
            f"{name} = {getattr(signals, name)[i, t].item():.6g}" for name in ("logp_pi", "logp_mu", "advantages")
        )
        raise MethodError(f"method {method} is {g[i, t].item()} at [{i}, {t}], where {inputs}")
    return g
