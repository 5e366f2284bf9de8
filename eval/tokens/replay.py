"""Every method's coefficient on the same recorded tokens: who keeps, drops or pulls back what another does not.

Shapes: B responses, T positions, S = K + 1 support slots.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from eval.tokens.records import Record
from methods import registry
from methods.registry import Method, Needs
from methods.signals import Scope, Signals, Support, sanitise
from methods.support import distinct

# Responses of one pass: bounds the memory whatever the size of the record.
BATCH = 4096
# What a method does with a token of nonzero advantage.
KEEPS, DROPS, PULLS_BACK = 0, 1, 2
ACTIONS = ("keeps", "drops", "pulls back")
ABSENT = {
    Needs.RECOMPUTED_ANCHOR: "needs the recomputed anchor, which is not recorded",
    Needs.MINI_BATCH: "ranks over whole mini-batches, of which the record holds a part",
    Needs.FULL: "needs the whole vocabulary, of which the record holds the top K",
}


@dataclass(frozen=True)
class Replay:
    """coefficients, actions: by label, over the active tokens. skipped: label to reason. record: those tokens."""

    record: Record
    coefficients: dict[str, NDArray[np.float32]]
    actions: dict[str, NDArray[np.int8]]
    skipped: dict[str, str]


def replay(record: Record, methods: Sequence[str]) -> Replay:
    """Recompute each method with the paper's options on a record of whole responses (`records.read_whole`)."""
    runnable, skipped = [], {}
    for name in methods:
        method = registry.get(name)
        reason = next((why for need, why in ABSENT.items() if need in method.requires(method.configure())), None)
        if reason is None:
            runnable.append(method)
        else:
            skipped[name] = reason
    parts: dict[str, list[NDArray[np.float32]]] = {method.name: [] for method in runnable}
    for chosen, signals in _batches(record):
        places = signals.response_mask
        for method in runnable:
            parts[method.name].append(_coefficient(method, signals)[places].numpy())
        assert int(places.sum()) == len(chosen)
    active = record["advantage"] != 0
    coefficients = {name: np.concatenate(values)[active] for name, values in parts.items()}
    tokens = record.where(active)
    return Replay(tokens, coefficients, {n: action(g, tokens["advantage"]) for n, g in coefficients.items()}, skipped)


def action(coefficient: NDArray[np.floating], advantage: NDArray[np.floating]) -> NDArray[np.int8]:
    """KEEPS where g has the sign of A, PULLS_BACK where it has the other, DROPS where it is 0."""
    signs = np.sign(coefficient) * np.sign(advantage)
    return np.select([signs > 0, signs < 0], [KEEPS, PULLS_BACK], DROPS).astype(np.int8)


def confusion(one: NDArray[np.int8], other: NDArray[np.int8]) -> NDArray[np.int64]:
    """[3, 3] counts: rows the first method's action, columns the second's."""
    return np.bincount(one.astype(np.int64) * 3 + other, minlength=9).reshape(3, 3)


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
        "mu < .01": mu < 0.01,
        ".01 <= mu < .1": (mu >= 0.01) & (mu < 0.1),
        ".1 <= mu < .5": (mu >= 0.1) & (mu < 0.5),
        "mu >= .5": mu >= 0.5,
    }
    return found | {"A > 0": record["advantage"] > 0, "A < 0": record["advantage"] < 0}


def _coefficient(method: Method, signals: Signals) -> torch.Tensor:
    return method.coefficient(signals, method.configure()).float()


def _batches(record: Record) -> Iterator[tuple[NDArray[np.int64], Signals]]:
    """Signals of BATCH responses at a time, right-padded, in the order of the record."""
    position = record["position"].astype(np.int64)
    starts = np.flatnonzero(position == 0)
    ends = np.append(starts[1:], len(position))
    if not np.array_equal(position, np.arange(len(position)) - np.repeat(starts, ends - starts)):
        raise ValueError(f"{record.path}: the tokens of its whole responses are not in their order")
    for first in range(0, len(starts), BATCH):
        chosen = np.arange(starts[first], ends[min(first + BATCH, len(starts)) - 1])
        rows = np.repeat(np.arange(len(starts)), ends - starts)[chosen] - first
        yield chosen, _signals(record, chosen, rows, position[chosen])


def _signals(record: Record, chosen: NDArray[np.int64], rows: NDArray[np.int64], places: NDArray[np.int64]) -> Signals:
    shape = (int(rows.max()) + 1, int(places.max()) + 1)

    def padded(name: str) -> torch.Tensor:
        values = record[name][chosen]
        full = np.zeros((*shape, *values.shape[1:]), dtype=values.dtype)
        full[rows, places] = values
        return torch.from_numpy(full)

    mask = np.zeros(shape, dtype=bool)
    mask[rows, places] = True
    ids = padded("support_ids").long()
    # Without randomness of its own a control draws from the run's seed.
    uniforms = np.random.default_rng([record.seed, int(chosen[0])]).random(shape, dtype=np.float32)
    return sanitise(
        Signals(
            logp_pi=padded("logp_pi"),
            logp_mu=padded("logp_mu"),
            advantages=padded("advantage"),
            response_mask=torch.from_numpy(mask),
            support=Support(ids, padded("support_logp_mu"), padded("support_logp_pi"), distinct(ids)),
            sum_pi_squared=padded("sum_pi_squared"),
            entropy=padded("entropy"),
            vocab_size=record.identity["vocab_size"],
            sampled=padded("token").long(),
            uniforms=torch.from_numpy(uniforms),
            scope=Scope.MICRO_BATCH,
        )
    )
