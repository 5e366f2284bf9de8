"""One pass over the vocabulary against torch and verl: what a method's inputs cost beside the log-sum-exp alone.

The pass gives the sampled token's log-prob, K candidates' log-probs, entropy, collision mass, reduced KL and predicted
direction. All times are CPU seconds on one thread; contestants take turns, so that a busy machine slows all alike.
verl gets one sequence at a time, as a micro-batch of one would; its entropy of all tokens at once needs three times
the logits' memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from time import process_time as CLOCK
from typing import Any

import psutil
import torch
from torch import Tensor

from methods.directions import reduced_direction, sampled_slot
from methods.measures import FORWARD_KL, reduced_value
from methods.signals import Support
from methods.support import masses, with_sampled
from methods.vocabulary import policy_statistics

SEQUENCES, TOKENS, TOP_K, VOCABULARY = 64, 512, 20, 50_000
ROUNDS = 5


def measure_vocabulary(sequences: int = SEQUENCES, tokens: int = TOKENS, vocabulary: int = VOCABULARY) -> int:
    """Print a table of CPU seconds (best of five warm rounds) and their ratios to the fastest log-sum-exp."""
    torch.set_num_threads(1)
    logits, ids, logp_mu = _data(sequences, tokens, vocabulary)
    memory = int(psutil.virtual_memory().available / (4 * vocabulary))
    contestants = _contestants(logits, ids, logp_mu, sequences, room=memory)
    rounds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(ROUNDS + 1):
        for name, (run, share) in contestants.items():
            start = CLOCK()
            run()
            rounds[name].append((CLOCK() - start) / share)
    warm = {name: values[1:] for name, values in rounds.items()}
    baselines = [name for name in warm if "logsumexp" in name]
    fastest = min(baselines, key=lambda name: min(warm[name]))
    print(f"[{sequences} x {tokens}] tokens, V = {vocabulary}, K = {TOP_K}, float32, torch {torch.__version__}\n")
    print(f"| one thread, best of {ROUNDS} | CPU seconds | ratio | ratios of the single rounds |\n|---|---|---|---|")
    for name, values in warm.items():
        paired = [a / b for a, b in zip(values, warm[fastest], strict=True)]
        ratio = min(values) / min(warm[fastest])
        print(f"| {name} | {min(values):.2f} | {ratio:.2f} | {min(paired):.2f} to {max(paired):.2f} |")
    print("\n" + json.dumps({"fastest log-sum-exp": fastest, "seconds": warm}))
    return 0


def _data(sequences: int, tokens: int, vocabulary: int) -> tuple[Tensor, Tensor, Tensor]:
    """Logits [N, V], filled chunk by chunk; K random candidates and the sampled id, and log-probs of mu: [N, K + 1]."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.empty(sequences * tokens, vocabulary)
    for chunk in logits.split(1024):
        chunk.normal_(0, 3, generator=generator)
    candidates = torch.randint(vocabulary, (len(logits), TOP_K + 1), generator=generator)
    noise = 0.1 * torch.randn(candidates.shape, generator=generator)
    return logits, candidates, policy_statistics(logits, candidates).logp + noise


def one_pass(logits: Tensor, candidates: Tensor, logp_mu: Tensor) -> tuple[Tensor, ...]:
    """All that a predictive mask of these tokens needs: (statistics of pi, D, d)."""
    ids, valid = with_sampled(candidates[:, :-1], candidates[:, -1])
    statistics = policy_statistics(logits, ids)
    support = Support(ids, logp_mu, statistics.logp, valid)
    classes = masses(support, logits.shape[-1])
    measure = reduced_value(FORWARD_KL, classes.mu, classes.pi, classes.mu_tail, classes.pi_tail)
    slot = sampled_slot(support)
    direction = reduced_direction(FORWARD_KL, classes, slot, "collision", statistics.sum_pi_squared)
    return statistics.logp[:, -1], statistics.entropy, measure, direction


def _contestants(
    logits: Tensor, ids: Tensor, logp_mu: Tensor, sequences: int, room: int
) -> dict[str, tuple[Callable[[], Any], float]]:
    """{name: (what to run, share of the rows that it runs on)}; `room`: rows of [N, V] float32 that memory can hold."""
    from verl.utils.torch_functional import entropy_from_logits, logprobs_from_logits

    part = logits[: min(len(logits), room // 2)]
    each, sampled = logits.chunk(sequences), ids[:, -1].chunk(sequences)
    gathered = ids.chunk(sequences)

    def by_chunks(rows: int) -> Callable[[], Any]:
        return lambda: [torch.logsumexp(chunk, -1) for chunk in logits.split(rows)]

    def verl() -> None:
        for logit, label, id_ in zip(each, sampled, gathered, strict=True):
            logprobs_from_logits(logit.unsqueeze(0), label.unsqueeze(0))
            entropy_from_logits(logit)
            logit.log_softmax(-1).gather(-1, id_)

    def by_verl() -> None:
        for logit, label in zip(each, sampled, strict=True):
            logprobs_from_logits(logit.unsqueeze(0), label.unsqueeze(0))

    return {
        "torch.logsumexp, whole": (lambda: torch.logsumexp(part, -1), len(part) / len(logits)),
        **{f"torch.logsumexp, {n} row{'s' if n > 1 else ''} at a time": (by_chunks(n), 1.0) for n in (1, 4, 16)},
        "one pass: all statistics, measure, direction": (lambda: one_pass(logits, ids, logp_mu), 1.0),
        "verl: log-prob of the sampled token": (by_verl, 1.0),
        "verl: log-prob, entropy, log_softmax gather": (verl, 1.0),
    }
