"""Log-probs at the sampling temperature: both policies of a ratio must be divided by the same one.

Shapes: V vocabulary on the last axis of the logits.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def log_prob_at_temperature(logits: Tensor, ids: Tensor, temperature: float) -> Tensor:
    """log softmax(logits / T) at the ids: [..., V], [...] int to [...], float32 or better; -inf: an impossible token.

    Raises ValueError for a temperature that is not a finite number > 0 (greedy decoding has no log-probs), for a logit
    that is NaN or +inf, where no token is possible, and for an id outside the vocabulary.
    """
    if not (math.isfinite(temperature) and temperature > 0):
        raise ValueError(f"temperature = {temperature!r}: allowed is a finite number > 0")
    outside = (ids < 0) | (ids >= logits.shape[-1])
    if outside.any():
        raise ValueError(f"id {int(ids[outside][0])}: allowed is 0 to {logits.shape[-1] - 1}")
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    top = logits.amax(-1, keepdim=True)
    if not torch.isfinite(top).all():
        raise ValueError("logits: NaN, +inf, or a row of -inf only; allowed are numbers and -inf")
    # The difference first: logits divided by a small temperature may overflow.
    logp = ((logits - top) / temperature).log_softmax(-1)
    return logp.gather(-1, ids.unsqueeze(-1)).squeeze(-1)
