"""Log-probs at the sampling temperature: both policies of a ratio must be divided by the same one.

Shapes: V vocabulary on the last axis.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def log_probs_at_temperature(logits: Tensor, temperature: float) -> Tensor:
    """log softmax(logits / T), [..., V], float32 or better; a logit of -inf is an impossible token.

    Raises ValueError for a temperature that is not a finite number > 0 (greedy decoding has no log-probs), for a logit
    that is NaN or +inf, and where no token is possible.
    """
    if not (math.isfinite(temperature) and temperature > 0):
        raise ValueError(f"temperature = {temperature!r}: allowed is a finite number > 0")
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    top = logits.amax(-1, keepdim=True)
    if not torch.isfinite(top).all():
        raise ValueError("logits: NaN, +inf, or a row of -inf only; allowed are numbers and -inf")
    # The difference first: logits divided by a small temperature may overflow.
    return ((logits - top) / temperature).log_softmax(-1)
