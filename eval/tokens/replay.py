"""Every method's coefficient on the same recorded tokens: who keeps, drops or pulls back what another does not.

Shapes: B responses, T positions, S = K + 1 support slots, n tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from eval.files import InputError
from eval.tokens.records import Record, whole_responses
from eval.tokens.tally import Tally, action, classes
from methods import registry
from methods.registry import Method, Needs
from methods.signals import Scope, Signals, Support, sanitise
from methods.support import distinct

# Tokens of one pass, as near as whole responses allow. Bounds the memory whatever the size of the record; a support
# of K = 20 then takes 1.4 MB, which the processor's cache holds from one operation to the next.
TOKENS = 1 << 14
ABSENT = {
    Needs.RECOMPUTED_ANCHOR: "needs the recomputed anchor, which is not recorded",
    Needs.MINI_BATCH: "ranks over whole mini-batches, of which the record holds a part",
    Needs.FULL: "needs the whole vocabulary, of which the record holds the top K",
}


@dataclass(frozen=True)
class Replay:
    """coefficients, actions: by variant, over the active tokens. skipped: variant to reason. record: those tokens."""

    record: Record
    coefficients: dict[str, NDArray[np.float32]]
    actions: dict[str, NDArray[np.int8]]
    skipped: dict[str, str]


def tally(path: Path, methods: Sequence[str]) -> Tally:
    """Count what each method does with the tokens of a record; a part of the record is in memory at a time.

    Raises InputError where no method can run on a record, and for values that the methods refuse.
    """
    runnable, skipped = _runnable(methods)
    if not runnable:
        raise InputError(f"no method to replay: {'; '.join(f'{name} {why}' for name, why in skipped.items())}")
    counted = Tally([method.name for method in runnable], skipped)
    for part in whole_responses(path, TOKENS):
        try:
            done = _replay(part, runnable, skipped)
        except ValueError as error:
            raise InputError(f"{path}: {error}") from error
        counted.add(done.actions, classes(done.record))
    return counted


def replay(record: Record, methods: Sequence[str]) -> Replay:
    """Recompute each method with the paper's options on a record of whole responses (`records.read_whole`)."""
    return _replay(record, *_runnable(methods))


def _runnable(names: Sequence[str]) -> tuple[list[Method], dict[str, str]]:
    """The methods that a record has the signals for, and why the others are left out."""
    found, skipped = [], {}
    for name in dict.fromkeys(names):
        method = registry.get(name)
        reason = next((why for need, why in ABSENT.items() if need in method.requires(method.configure())), None)
        if reason is None:
            found.append(method)
        else:
            skipped[name] = reason
    return found, skipped


def _replay(record: Record, methods: Sequence[Method], skipped: dict[str, str]) -> Replay:
    active = record["advantage"] != 0
    parts: dict[str, list[NDArray[np.float32]]] = {method.name: [] for method in methods}
    for signals in _batches(record):
        for method in methods:
            g = method.coefficient(signals, method.configure()).float()
            parts[method.name].append(g[signals.response_mask].numpy())
    coefficients = {name: np.concatenate(values)[active] for name, values in parts.items()}
    tokens = record.where(active)
    return Replay(tokens, coefficients, {n: action(g, tokens["advantage"]) for n, g in coefficients.items()}, skipped)


def _batches(record: Record) -> Iterator[Signals]:
    """Signals of about TOKENS tokens at a time, right-padded, in the order of the record."""
    position = record["position"].astype(np.int64)
    starts = np.flatnonzero(position == 0)
    ends = np.append(starts[1:], len(position))
    # The first response of each batch: the one that begins in another stretch of TOKENS than the one before it.
    firsts = np.flatnonzero(np.diff(starts // TOKENS, prepend=-1))
    for first, last in zip(firsts, [*firsts[1:], len(starts)], strict=True):
        chosen = np.arange(starts[first], ends[last - 1])
        lengths = (ends - starts)[first:last]
        yield _signals(record, chosen, np.repeat(np.arange(last - first), lengths), position[chosen])


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
