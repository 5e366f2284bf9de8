"""vLLM against the Hugging Face rollout: whole training steps alternating in one process, start-up, long sampling.

In the trainings both engines share one weight ring and one trainer, so only the rollout differs. All numbers are CPU
seconds of this process on one thread: wall time of a machine that does nothing else, and steady on one that does.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import process_time as CLOCK
from typing import Any

import torch

from workflows.tools.bench.step import make_run, make_world

ROWS, PROMPT, TOKENS, TOP_K = 256, 8, 64, 20


def measure_rollouts(steps: int) -> int:
    """Print CPU seconds per step and per rollout of both engines, vLLM's start-up, and the rate of 256 x 64 tokens."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        root = Path(folder)
        start = CLOCK()
        import vllm

        imported = CLOCK() - start
        whole, rollouts, engine = _trainings(root, steps)
        long = _long(root / "long")
    print(f"vLLM {vllm.__version__}: import {imported:.1f} CPU s, engine {engine:.1f}")
    for name in ("hf", "vllm"):
        print(f"{name:22s} {_median(whole[name]):.3f} CPU s a step, of which {_median(rollouts[name]):.3f} sampling")
    ratios = [a / b for a, b in zip(whole["vllm"], whole["hf"], strict=True)]
    print(f"{'ratio of whole steps':22s} {_median(ratios):.2f}  (min {min(ratios):.2f}, max {max(ratios):.2f})")
    for name, rate in long.items():
        extras = "no" if name == "generate" else f"top-{TOP_K}"
        print(f"{name:22s} {rate:.0f} tokens a CPU s, {ROWS} x {TOKENS}, {extras} log-probs")
    return 0


def _median(values: list[float]) -> float:
    return statistics.median(values)


def _trainings(root: Path, steps: int) -> tuple[dict[str, list[float]], dict[str, list[float]], float]:
    from methods.backend.compose import build_trainer
    from methods.backend.rollout.batch import BatchRolloutManager
    from methods.backend.rollout.vllm_rollout import VLLMRollout

    steps = 2 * steps
    make_world(root, steps)
    trainer = build_trainer(make_run(root, steps))
    worker, start = trainer.worker, CLOCK()
    other = VLLMRollout(worker.rollout.config, worker.rollout.model_config, None)
    started, other.ring = CLOCK() - start, worker.rollout.ring
    engines = [("hf", worker.rollout), ("vllm", other)]
    whole: dict[str, list[float]] = {"hf": [], "vllm": []}
    rollouts: dict[str, list[float]] = {"hf": [], "vllm": []}

    def generate(*args: Any) -> Any:
        before = CLOCK()
        out = engines[0][1].generate(*args)
        rollouts[engines[0][0]].append(CLOCK() - before)
        return out

    inner, clock = trainer._compute_metrics, [CLOCK()]

    def after_step(*args: Any, **kwargs: Any) -> None:
        inner(*args, **kwargs)
        whole[engines[0][0]].append(CLOCK() - clock[0])
        engines.reverse()
        worker.rollout, clock[0] = engines[0][1], CLOCK()

    trainer._compute_metrics = after_step
    trainer.fit(BatchRolloutManager(trainer.config, generate))
    # The first step of each pays for lazy initialisation.
    return {k: v[1:] for k, v in whole.items()}, {k: v[1:] for k, v in rollouts.items()}, started


def _long(folder: Path) -> dict[str, float]:
    """Tokens per CPU second, best of three, of a random model with 2.6 million parameters that never ends early."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from methods.backend.rollout.sampling import SamplingParameters, generator, sample
    from methods.backend.rollout.vllm_engine import EngineSettings, InProcessEngine, request_seeds

    size = {"hidden_size": 256, "head_dim": 64, "intermediate_size": 768, "vocab_size": 512}
    heads = {"num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4}
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(Qwen3Config(**size, **heads, tie_word_embeddings=True)).eval()
    model.generation_config.pad_token_id = 0
    model.save_pretrained(folder)
    prompts = torch.randint(5, 512, (ROWS, PROMPT))
    engine = InProcessEngine(EngineSettings(str(folder), "float32", PROMPT + TOKENS, ROWS, TOP_K, {}))
    engine.load(model.state_dict())
    parameters, seeds = SamplingParameters(1.0, TOKENS, TOP_K), request_seeds(0, 0, 0, 0, ROWS)

    def generate() -> None:
        model.generate(
            prompts,
            attention_mask=torch.ones_like(prompts),
            do_sample=True,
            top_k=0,
            max_new_tokens=TOKENS,
        )

    contestants: dict[str, Callable[[], Any]] = {
        "vllm": lambda: engine.sample(prompts.tolist(), parameters, set(), 0, seeds),
        "our sampler": lambda: sample(model, prompts.tolist(), parameters, set(), 0, generator(0)),
        "generate": generate,
    }
    best = dict.fromkeys(contestants, 0.0)
    for _ in range(3):
        for name, run in contestants.items():
            start = CLOCK()
            run()
            best[name] = max(best[name], ROWS * TOKENS / (CLOCK() - start))
    return best
