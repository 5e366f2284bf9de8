"""What a coefficient function costs in a training step, and what else reads the vocabulary there.

One training of the bench's toy world (DPPO Top-K KL) is time_function from within; the signals of its second step are
then given to every method of the catalogue. All times are CPU seconds of this process on one thread.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from time import process_time as CLOCK
from typing import Any

import torch

from methods import registry
from methods.signals import Scope, Signals
from workflows.tools.bench.step import make_run, make_world

TRAINED = "dppo_topk_kl"
REPEATS = 5


def measure_coefficients(steps: int) -> int:
    """Print each part's and each method's share of a training step (medians over the steps after the first)."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        whole, parts, signals = _train(Path(folder), steps)
    step = statistics.median(whole)
    tokens = sum(int(batch.response_mask.sum()) for batch in signals)
    print(
        f"step: {step:.3f} CPU seconds, {len(signals)} micro-batches, {tokens} tokens (median of {len(whole)} steps)\n"
    )
    print("| part of the training step | ms | share |\n|---|---|---|")
    for name, spent in parts.items():
        print(f"| {name} | {1000 * statistics.median(spent):.1f} | {statistics.median(spent) / step:.2%} |")
    print("\n| method, all its calls of a step | ms | share |\n|---|---|---|")
    shares = {}
    for name in registry.names():
        seconds = _replay(name, signals)
        shares[name] = seconds / step
        print(f"| {name} | {1000 * seconds:.2f} | {shares[name]:.2%} |")
    dearest = max(shares, key=lambda name: shares[name])
    print(f"\ndearest: {dearest}, {shares[dearest]:.2%} of a step")
    return 0


def _train(root: Path, steps: int) -> tuple[list[float], dict[str, list[float]], list[Signals]]:
    """CPU seconds of each step but the first, of its time_function parts, and the signals of the second step."""
    make_world(root, steps)
    from verl.workers.engine.fsdp import transformer_impl

    from methods.backend import loss, support_loss
    from methods.backend.compose import build_trainer
    from methods.backend.rollout.batch import BatchRolloutManager

    seen: list[list[Signals]] = [[]]
    spent: dict[str, float] = {}

    def time_function(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        spent[name] = 0.0

        def run(*args: Any, **kwargs: Any) -> Any:
            start = CLOCK()
            out = function(*args, **kwargs)
            spent[name] += CLOCK() - start
            if isinstance(out, Signals):
                seen[-1].append(out)
            return out

        return run

    method = registry.get(TRAINED)
    places: list[tuple[str, Any, str]] = [
        ("coefficient function", method, "coefficient"),
        ("checking the signals (sanitise)", loss, "sanitise"),
        ("metrics of the tokens", loss.TokenMetrics, "observe"),
        ("pass over the vocabulary (policy_statistics)", support_loss, "policy_statistics"),
        ("verl's own log-probs, forward", transformer_impl, "logprobs_from_logits"),
    ]
    whole: list[float] = []
    parts: dict[str, list[float]] = {name: [] for name, _, _ in places}
    with contextlib.ExitStack() as stack:
        for name, owner, attribute in places:
            stack.enter_context(_replace(owner, attribute, time_function(name, getattr(owner, attribute))))
        trainer = build_trainer(make_run(root, steps))
        inner = trainer._compute_metrics

        def after_step(*args: Any, **kwargs: Any) -> None:
            inner(*args, **kwargs)
            whole.append(CLOCK() - clock[0])
            for name in spent:
                parts[name].append(spent[name])
                spent[name] = 0.0
            seen.append([])
            clock[0] = CLOCK()

        trainer._compute_metrics = after_step
        clock = [CLOCK()]
        trainer.fit(BatchRolloutManager(trainer.config, trainer.worker.rollout.generate))
    if not all(parts["coefficient function"]):
        raise RuntimeError("the training did not call the catalogue's coefficient function: these numbers mean nothing")
    return whole[1:], {name: values[1:] for name, values in parts.items()}, seen[1]


@contextlib.contextmanager
def _replace(owner: Any, attribute: str, value: Any) -> Iterator[None]:
    """owner.attribute = value, frozen dataclasses included, until the end."""
    kept = getattr(owner, attribute)
    put = object.__setattr__ if isinstance(owner, registry.Method) else setattr
    put(owner, attribute, value)
    try:
        yield
    finally:
        put(owner, attribute, kept)


def _replay(name: str, batches: list[Signals]) -> float:
    """CPU seconds of the method's coefficient on all micro-batches of a step, best of five."""
    method = registry.get(name)
    config, best = method.configure(), float("inf")
    complete = [_complete(batch) for batch in batches]
    for _ in range(REPEATS):
        start = CLOCK()
        for batch in complete:
            method.coefficient(batch, config)
        best = min(best, CLOCK() - start)
    return best


def _complete(signals: Signals) -> Signals:
    """With everything that a method may need; what the run had no use for gets values that cost the same."""
    random = torch.Generator().manual_seed(0)
    support = signals.support
    assert support is not None and signals.vocab_size is not None
    sampled = support.ids[..., -1]
    full = torch.randn(2, *sampled.shape, signals.vocab_size, generator=random).log_softmax(-1)
    return replace(
        signals,
        logp_old=signals.logp_mu if signals.logp_old is None else signals.logp_old,
        full=(full[0], full[1]),
        sampled=torch.where(signals.response_mask, sampled, 0),
        uniforms=torch.rand(sampled.shape, generator=random),
        scope=Scope.MINI_BATCH,
    )
