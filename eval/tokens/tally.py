"""What methods do with the same tokens, counted as the tokens go by: nothing is kept of a token.

Shapes: M methods, C classes of tokens, n tokens of a part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from eval.tokens.records import Record

# What a method does with a token of nonzero advantage.
KEEPS, DROPS, PULLS_BACK = 0, 1, 2
ACTIONS = ("keeps", "drops", "pulls back")


def action(coefficient: NDArray[np.floating], advantage: NDArray[np.floating]) -> NDArray[np.int8]:
    """KEEPS where g has the sign of A, PULLS_BACK where it has the other, DROPS where it is 0."""
    signs = np.sign(coefficient) * np.sign(advantage)
    return np.select([signs > 0, signs < 0], [KEEPS, PULLS_BACK], DROPS).astype(np.int8)


def classes(record: Record) -> dict[str, NDArray[np.bool_]]:
    """Where tokens may differ: rank of the sampled token under mu, place in the response, mu, sign of A."""
    ids, mu = record["support_ids"], np.exp(record["logp_mu"])
    ranks = np.where(ids[:, :-1] == ids[:, -1:], np.arange(ids.shape[1] - 1), ids.shape[1]).min(axis=1)
    last = record["position"] == record["length"] - 1
    found = {
        "likeliest of mu": ranks == 0,
        "among the candidates": (ranks > 0) & (ranks < ids.shape[1]),
        "outside the candidates": ranks == ids.shape[1],
        "first token": record["position"] == 0,
        "between": (record["position"] > 0) & ~last,
        "last token": last,
        "mu < 0.01": mu < 0.01,
        "0.01 <= mu < 0.1": (mu >= 0.01) & (mu < 0.1),
        "0.1 <= mu < 0.5": (mu >= 0.1) & (mu < 0.5),
        "mu >= 0.5": mu >= 0.5,
    }
    return found | {"A > 0": record["advantage"] > 0, "A < 0": record["advantage"] < 0}


class Tally:
    """Counts over active tokens for each pair of methods. skipped: methods left out, with the reason."""

    def __init__(self, methods: Sequence[str], skipped: Mapping[str, str]) -> None:
        self.methods, self.skipped = list(methods), dict(skipped)
        self.tokens = 0
        # [M, 3, M, 3]: tokens of one action under a method and another under a second, for all tokens and per class.
        self._pairs = np.zeros((3 * len(self.methods),) * 2, dtype=np.int64)
        self._by_class: dict[str, NDArray[np.int64]] = {}

    def add(self, actions: Mapping[str, NDArray[np.int8]], where: Mapping[str, NDArray[np.bool_]]) -> None:
        """Count a part: by method its actions [n], by class whether a token is of it [n]."""
        stacked = np.stack([actions[name] for name in self.methods], axis=1)
        # One-hot in float32, so that a matrix product counts all pairs at once; exact below 2^24 tokens.
        hot = (stacked[:, :, None] == np.arange(len(ACTIONS))).astype(np.float32)
        hot = hot.reshape(len(stacked), len(self._pairs))
        self.tokens += len(hot)
        self._pairs += (hot.T @ hot).astype(np.int64)
        for name, flags in where.items():
            own = hot[flags]
            counted = self._by_class.setdefault(name, np.zeros_like(self._pairs))
            counted += (own.T @ own).astype(np.int64)

    def shares(self, method: str) -> NDArray[np.float64]:
        """[3]: of the active tokens, those that the method keeps, drops, pulls back."""
        return np.diag(self.confusion(method, method)) / max(self.tokens, 1)

    def confusion(self, one: str, other: str) -> NDArray[np.int64]:
        """[3, 3] counts: rows the first method's action, columns the second's."""
        return self._block(self._pairs, one, other)

    def share_that_differs(self, one: str, other: str) -> dict[str, float]:
        """By class that has tokens: the share on which the two methods act differently."""
        found = {}
        for name, pairs in self._by_class.items():
            block = self._block(pairs, one, other)
            if total := int(block.sum()):
                found[name] = 1 - int(np.trace(block)) / total
        return found

    def _block(self, pairs: NDArray[np.int64], one: str, other: str) -> NDArray[np.int64]:
        row, column = (3 * self.methods.index(name) for name in (one, other))
        return pairs[row : row + 3, column : column + 3]
