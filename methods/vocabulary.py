"""Statistics of a softmax policy over the vocabulary, in one pass over the logits, a few rows at a time.

Shapes: N tokens, V logits, S support slots. Everything is float32 and without gradient. No temporary grows with N * V.

With m = max z, e = exp(z - m): log-probs need sum e, the collision mass sum e^2, the entropy sum e (z - m). All four
numbers of two disjoint parts of the vocabulary combine into those of their union, so vocabulary-parallel shards reduce
a few numbers a token and never exchange logits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

# Numbers of a chunk. CPU: two float32 work buffers of 2^19 numbers are 4 MB and stay in cache, so that the logits come
# from memory once. Elsewhere: 2^24 (64 MB) keep a device busy and are small against any model's logits.
CHUNK_ELEMENTS = 1 << 19
DEVICE_CHUNK_ELEMENTS = 1 << 24
# exp is exactly zero in float32 below -103.98; a finite floor in place of -inf makes 0 * z zero, not NaN.
LOWEST = -110.0


@dataclass(frozen=True)
class PolicyStatistics:
    """logp: [N, S] at the given ids (-inf in filler slots); sum_pi_squared, entropy (nats): [N]."""

    logp: Tensor
    sum_pi_squared: Tensor
    entropy: Tensor


@dataclass(frozen=True)
class ShardStatistics:
    """What one part of the vocabulary adds: z its logits, m their maximum, e = exp(z - m).

    maximum: [N], -inf for a part without possible token; sum_e, sum_e_squared, sum_e_z (of e (z - m)): [N];
    logits: [N, S] at the ids, -inf for an id that is a filler or belongs to another part.
    """

    maximum: Tensor
    sum_e: Tensor
    sum_e_squared: Tensor
    sum_e_z: Tensor
    logits: Tensor

    def finish(self) -> PolicyStatistics:
        """Statistics of the softmax over all that was merged; NaN where no token is possible."""
        log_sum = self.sum_e.log()
        return PolicyStatistics(
            # The two large numbers are subtracted first: their difference is exact or nearly so.
            logp=self.logits - self.maximum.unsqueeze(-1) - log_sum.unsqueeze(-1),
            sum_pi_squared=self.sum_e_squared / self.sum_e.square(),
            # Both terms are positive: nothing cancels, however large the logits are.
            entropy=log_sum - self.sum_e_z / self.sum_e,
        )


def policy_statistics(logits: Tensor, ids: Tensor, rows: Tensor | None = None) -> PolicyStatistics:
    """Log-probs at `ids`, collision mass and entropy of softmax(logits).

    logits: [N, V] at the sampling temperature; ids: [N, S] int64, an id < 0 is a filler. With `rows`, [N] int64,
    logits is [any, V] and row n of the result belongs to logits[rows[n]].
    A row without a possible token, or with NaN or +inf, gives NaN, which `sanitise` refuses inside the response mask.
    Raises ValueError for an id outside the vocabulary, and for a vocabulary of none.
    """
    if ids.numel() and int(ids.max()) >= logits.shape[-1]:
        raise ValueError(f"support id {int(ids.max())} is outside the vocabulary of {logits.shape[-1]} logits")
    if not logits.shape[-1]:
        raise ValueError("logits of a vocabulary of 0 tokens: no distribution")
    return shard_statistics(logits, ids, rows=rows).finish()


@torch.no_grad()
def shard_statistics(logits: Tensor, ids: Tensor, first_id: int = 0, rows: Tensor | None = None) -> ShardStatistics:
    """Of the ids from `first_id` on: logits [N, V of this part]; ids and rows as in `policy_statistics`."""
    tokens, width = ids.shape[0], logits.shape[-1]
    step = max(1, (CHUNK_ELEMENTS if logits.device.type == "cpu" else DEVICE_CHUNK_ELEMENTS) // width)
    maximum, top, total, norm, product = (torch.empty(tokens, device=logits.device) for _ in range(5))
    inside = (ids >= first_id) & (ids < first_id + width)
    places, gathered = torch.where(inside, ids - first_id, 0), torch.empty(ids.shape, device=logits.device)
    work = [torch.empty(min(step, tokens), width, device=logits.device) for _ in range(2)]
    for start in range(0, tokens, step):
        part = slice(start, min(start + step, tokens))
        z, p = (buffer[: part.stop - start] for buffer in work)
        chunk = (logits[part] if rows is None else logits.index_select(0, rows[part])).float()
        torch.gather(chunk, -1, places[part], out=gathered[part])
        highest = torch.amax(chunk, -1, out=maximum[part])
        torch.sub(chunk, highest.unsqueeze(-1), out=z).clamp_(min=LOWEST)
        # torch's fused softmax costs less than exp alone. p is e over a roughly summed sum e; its largest value, where
        # e = 1, tells that sum, and p summed again, pairwise, corrects it.
        torch.softmax(z, -1, out=p)
        torch.amax(p, -1, out=top[part])
        torch.sum(p, -1, out=total[part])
        torch.linalg.vector_norm(p, dim=-1, out=norm[part])
        torch.sum(z.mul_(p), -1, out=product[part])
    empty = maximum == -torch.inf
    return ShardStatistics(
        maximum=maximum,
        sum_e=(total / top).masked_fill(empty, 0.0),
        sum_e_squared=(norm / top).square().masked_fill(empty, 0.0),
        sum_e_z=(product / top).masked_fill(empty, 0.0),
        logits=gathered.masked_fill(~inside, -torch.inf),
    )


def merge(parts: Sequence[ShardStatistics]) -> ShardStatistics:
    """Statistics of the union of disjoint parts of the vocabulary; across processes: one max- and one sum-reduction."""
    maximum = torch.stack([part.maximum for part in parts]).amax(0)
    # A part without possible token has maximum -inf: its sums are 0 and stay so, whatever they are scaled by.
    shifts = [torch.where(part.maximum == -torch.inf, 0.0, part.maximum - maximum) for part in parts]
    scales = [shift.exp() for shift in shifts]
    terms = list(zip(parts, shifts, scales, strict=True))
    return ShardStatistics(
        maximum=maximum,
        sum_e=_total(scale * part.sum_e for part, _, scale in terms),
        sum_e_squared=_total(scale.square() * part.sum_e_squared for part, _, scale in terms),
        sum_e_z=_total(scale * (part.sum_e_z + shift * part.sum_e) for part, shift, scale in terms),
        logits=torch.stack([part.logits for part in parts]).amax(0),
    )


def _total(terms: Iterable[Tensor]) -> Tensor:
    return torch.stack(list(terms)).sum(0)
