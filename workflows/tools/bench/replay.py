"""Replaying a token record of a million tokens for every method that can run on one: seconds and peak memory.

The record is SYNTHETIC: numbers of a seeded generator in the shape of a run's, in a temporary folder; no rate that the
replay prints of it means anything. What is measured is the command itself, `python -m eval.tokens replay RECORD`, in a
process of its own with one thread: imports, reading and printing are in the time.

Shapes: N tokens of a part, K candidates.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from methods.tokens import schema as token_schema

TOKENS, TOP_K, VOCABULARY = 1_000_000, 20, 49_152
# Tokens of a row group, as a training step of a few hundred responses has them.
PART = 50_000
LONGEST = 64
# The target, on one core, for all methods.
MOST_SECONDS, MOST_GIGABYTES = 60, 2
Columns = dict[str, NDArray[Any]]


def measure_replay(tokens: int = TOKENS) -> int:
    """Print what a replay of so many synthetic tokens costs; 0, or 1 where it misses the target or fails."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokens.parquet"
        start = time.perf_counter()
        rows = write_record(path, tokens)
        size = path.stat().st_size / 1e6
        print(f"SYNTHETIC record: {rows} tokens, K = {TOP_K}, V = {VOCABULARY}, {size:.0f} MB", end="")
        print(f" (written in {time.perf_counter() - start:.0f} s)", flush=True)
        output = Path(folder) / "printed.txt"
        code, wall, cpu, memory = _run([sys.executable, "-m", "eval.tokens", "replay", str(path)], output)
        printed = output.read_text()
    if code:
        print(printed[-2000:], file=sys.stderr)
        return 1
    # The second paragraph is the table of shares: a head, and a line a method.
    methods = len(printed.split("\n\n")[1].splitlines()) - 1
    print(f"{methods} methods: {wall:.1f} s, {cpu:.1f} CPU s, peak memory {memory:.2f} GB")
    met = wall <= MOST_SECONDS and memory <= MOST_GIGABYTES
    print(f"target {MOST_SECONDS} s and {MOST_GIGABYTES} GB: {'met' if met else 'MISSED'}")
    return 0 if met else 1


def _run(command: list[str], output: Path) -> tuple[int, float, float, float]:
    """(exit code, wall seconds, CPU seconds, peak resident GB) of a command with one thread, its text in `output`."""
    before, start, peak = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter(), 0
    with output.open("w") as file:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=environment)
        while process.poll() is None:
            # Not the child's ru_maxrss: that counts this process, of which it was forked, too.
            peak = max(peak, _high_water(process.pid))
            time.sleep(0.02)
    after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - start
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return process.returncode, wall, cpu, peak / 1e9


def _high_water(pid: int) -> int:
    """Most bytes that the process has had resident; 0 where it has ended (Linux)."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def write_record(path: Path, tokens: int, seed: int = 0) -> int:
    """A synthetic record of at least so many tokens, all of whole responses; returns how many."""
    types = token_schema.columns([])
    identity = {"version": token_schema.VERSION, "setting": "synthetic", "variant": "synthetic", "method": "pg_is"}
    identity |= {
        "seed": seed,
        "update": "unmasked",
        "top_k": TOP_K,
        "staleness": 8,
        "lr": 0.0,
        "vocab_size": VOCABULARY,
    }
    schema = pa.schema([(name, _arrow(kind)) for name, kind in types.items()])
    schema = schema.with_metadata({"tether_token_record": json.dumps(identity)})
    written = 0
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for step, columns in enumerate(_parts(tokens, seed), start=1):
            n = len(columns["position"])
            columns["step"] = np.full(n, step)
            # The rest is not read by a replay; a constant costs no space.
            filled = [columns.get(name, np.zeros(n)) for name in types]
            arrays = [_array(values, field.type) for values, field in zip(filled, schema, strict=True)]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
            written += n
    return written


def _parts(tokens: int, seed: int) -> Iterator[Columns]:
    """Whole responses of 1 to LONGEST tokens, about PART tokens at a time."""
    random, left = np.random.default_rng(seed), tokens
    while left > 0:
        lengths = random.integers(1, LONGEST + 1, size=max(1, 2 * min(left, PART) // LONGEST))
        columns = _part(random, lengths)
        left -= len(columns["position"])
        yield columns


def _part(random: np.random.Generator, lengths: NDArray[np.int64]) -> Columns:
    """The columns that a replay reads, [N] or [N, K + 1]."""
    response = np.repeat(np.arange(len(lengths)), lengths)
    n, starts = len(response), np.cumsum(lengths) - lengths
    # mu: K candidates of falling probability, and a tail; pi: the same logits moved by the mismatch of an old rollout.
    scale = random.gamma(2.0, 1.5, size=(n, 1))
    logits = -np.sort(random.exponential(1.0, size=(n, TOP_K + 1)) * scale, axis=1)
    moved = logits + random.normal(0.0, 0.3, size=logits.shape)
    logp_mu, logp_pi = (values - np.logaddexp.reduce(values, axis=1, keepdims=True) for values in (logits, moved))
    # The last class is the tail: where it is drawn, one unseen id holds half of it.
    drawn = (np.exp(logp_mu).cumsum(1) < random.random((n, 1))).sum(1).clip(max=TOP_K)
    outside = drawn == TOP_K
    ids = (random.integers(VOCABULARY, size=(n, 1)) + np.arange(TOP_K + 1) * 101) % VOCABULARY
    rows = np.arange(n)
    sampled_mu, sampled_pi = (v[rows, drawn] - np.log(2.0) * outside for v in (logp_mu, logp_pi))
    for values, last in ((logp_mu, sampled_mu), (logp_pi, sampled_pi), (ids, ids[rows, drawn])):
        values[:, -1] = last
    pi = np.exp(logp_pi[:, :-1])
    return {
        "mini_batch": np.zeros(n),
        "response": response,
        "position": rows - starts[response],
        "length": lengths[response],
        "token": ids[:, -1],
        "age": np.full(n, 8),
        "sampled_row": np.full(n, True),
        "advantage": random.choice([-0.375, 0.625], size=len(lengths))[response],
        "logp_pi": sampled_pi,
        "logp_mu": sampled_mu,
        "logp_mu_forward": sampled_mu,
        "sum_pi_squared": (pi**2).sum(1),
        "entropy": -(pi * logp_pi[:, :-1]).sum(1),
        "top_mass_mu": np.exp(logp_mu[:, :-1]).sum(1),
        "support_ids": ids,
        "support_logp_mu": logp_mu,
        "support_logp_pi": logp_pi,
    }


def _array(values: NDArray[Any], kind: pa.DataType) -> pa.Array:
    if not pa.types.is_list(kind):
        return pa.array(values.astype(kind.to_pandas_dtype()))
    flat = pa.array(values.ravel().astype(kind.value_type.to_pandas_dtype()))
    return pa.ListArray.from_arrays(pa.array(np.arange(len(values) + 1, dtype=np.int32) * values.shape[1]), flat)


def _arrow(kind: str) -> pa.DataType:
    if kind.startswith("list<"):
        return pa.list_(_arrow(kind.removeprefix("list<").removesuffix(">")))
    return {"int16": pa.int16(), "int32": pa.int32(), "float32": pa.float32(), "bool": pa.bool_()}[kind]
