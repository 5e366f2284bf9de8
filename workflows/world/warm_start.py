"""Supervised warm start: teach a small model the task until its sampled accuracy reaches a target.

python -m workflows.world.warm_start --world DIR --model JSON --training JSON --seed N --output DIR [--shared DIR]
"""

from __future__ import annotations

from methods.backend import environment  # noqa: F401  # isort: skip  # before anything imports torch

import argparse
import hashlib
import json
import os
import platform
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import (
    AutoTokenizer,
    GenerationConfig,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from methods.backend.rollout.sampling import SamplingParameters, generator, sample
from methods.backend.run import versions
from workflows.files import atomic_folder
from workflows.world import build
from workflows.world.sorting import SPECIALS, SortingWorld

KINDS = ("qwen3", "qwen3_moe")


@dataclass(frozen=True)
class ModelSize:
    """hidden: width; layers; heads: query and key-value heads; head_size: 32 or more, so that vLLM can serve it too.

    kind: qwen3, or qwen3_moe, where every layer has `experts` experts of width `hidden`, `experts_per_token` of them
    chosen by each token, their weights normalised, without an auxiliary loss (toy-sized Qwen3-30B-A3B).
    """

    hidden: int
    layers: int
    heads: int
    head_size: int = 32
    kind: str = "qwen3"
    experts: int = 8
    experts_per_token: int = 2

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"model.kind = {self.kind!r}: allowed are {', '.join(KINDS)}")
        if not 1 <= self.experts_per_token <= self.experts:
            raise ValueError(
                f"model.experts_per_token = {self.experts_per_token}: allowed is 1 to model.experts = {self.experts}"
            )


@dataclass(frozen=True)
class Training:
    """target: sampled accuracy to stop at; batch, lr, warmup_steps, weight_decay: AdamW; check_every, max_steps."""

    target: float = 0.30
    batch: int = 256
    lr: float = 2e-3
    warmup_steps: int = 50
    weight_decay: float = 0.01
    check_every: int = 50
    max_steps: int = 2000
    check_prompts: int = 256


def make_model(world: SortingWorld, size: ModelSize, seed: int) -> Qwen3ForCausalLM | Qwen3MoeForCausalLM:
    """A Qwen3 model with random weights from `seed`."""
    torch.manual_seed(seed)
    pad, bos, eos = (SPECIALS.index(name) for name in ("<pad>", "<bos>", "<eos>"))
    settings: dict[str, Any] = {
        "vocab_size": world.vocab_size,
        "hidden_size": size.hidden,
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.heads,
        "num_key_value_heads": size.heads,
        "head_dim": size.head_size,
        "intermediate_size": 4 * size.hidden,
        "max_position_embeddings": max(64, world.prompt_length + world.response_length),
        "tie_word_embeddings": True,
        "pad_token_id": pad,
        "bos_token_id": bos,
        "eos_token_id": eos,
        "attn_implementation": "sdpa",
    }
    model: Qwen3ForCausalLM | Qwen3MoeForCausalLM
    if size.kind == "qwen3":
        model = Qwen3ForCausalLM(Qwen3Config(**settings))
    else:
        mixture = Qwen3MoeConfig(
            **settings,
            moe_intermediate_size=size.hidden,
            num_experts=size.experts,
            num_experts_per_tok=size.experts_per_token,
            decoder_sparse_step=1,
            norm_topk_prob=True,
            output_router_logits=False,
            router_aux_loss_coef=0.0,
        )
        model = Qwen3MoeForCausalLM(mixture)
    model.generation_config = GenerationConfig(pad_token_id=pad, bos_token_id=bos, eos_token_id=eos)
    return model


def encode(world: SortingWorld, numbers: np.ndarray) -> tuple[Tensor, Tensor]:
    """Prompt ids [N, numbers + 2] and response ids [N, numbers + 1] of problems [N, numbers]."""
    _, bos, eos, sep, _ = range(len(SPECIALS))
    x = torch.as_tensor(numbers) + len(SPECIALS)
    column = torch.ones(len(x), 1, dtype=torch.int64)
    return torch.cat([bos * column, x, sep * column], 1), torch.cat([x.sort(1).values, eos * column], 1)


def accuracy(model: Any, world: SortingWorld, numbers: np.ndarray, seed: int) -> float:
    """Share of exactly right samples, one per problem, temperature 1."""
    prompts, answers = encode(world, numbers)
    parameters = SamplingParameters(temperature=1.0, max_tokens=world.response_length)
    out = sample(model.eval(), prompts.tolist(), parameters, {2}, 0, generator(seed, 1))
    width = min(out.tokens.shape[1], answers.shape[1])
    right = (out.tokens[:, :width] == answers[:, :width]).all(1) & (out.lengths == answers.shape[1])
    return float(right.float().mean())


def fit(world: SortingWorld, size: ModelSize, training: Training, seed: int) -> tuple[Any, dict[str, Any]]:
    """Train until the target. Returns (model, record). Raises RuntimeError when max_steps do not suffice."""
    model = make_model(world, size, seed)
    random = np.random.default_rng([seed, 2])
    held_out = world.draw(training.check_prompts, np.random.default_rng([seed, 3]))
    optimizer = torch.optim.AdamW(model.parameters(), lr=training.lr, weight_decay=training.weight_decay)
    reached = 0.0
    for step in range(1, training.max_steps + 1):
        prompts, answers = encode(world, world.draw(training.batch, random))
        logits = model.train()(torch.cat([prompts, answers], 1)).logits[:, prompts.shape[1] - 1 : -1]
        loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), answers.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = training.lr * min(1.0, step / training.warmup_steps)
        optimizer.step()
        if step % training.check_every == 0:
            reached = accuracy(model, world, held_out, seed)
            print(f"[warm start] step {step}  loss {loss.item():.3f}  accuracy {reached:.3f}", flush=True)
            if reached >= training.target:
                return model, {"steps": step, "accuracy": reached, "loss": loss.item()}
    raise RuntimeError(
        f"warm start: accuracy {reached:.3f} after training.max_steps = {training.max_steps} steps, "
        f"training.target = {training.target}"
    )


def key(world: SortingWorld, size: ModelSize, training: Training, seed: int) -> str:
    """A name for everything that decides a warm start: settings, our program, versions, kind of machine."""
    here = Path(__file__).resolve().parent
    program = [*sorted(here.glob("*.py")), here.parents[1] / "methods" / "backend" / "rollout" / "sampling.py"]
    settings = {
        "world": vars(world),
        "model": asdict(size),
        "training": asdict(training),
        "seed": seed,
        "versions": versions.installed(),
        "machine": [platform.machine(), torch.get_num_threads()],
    }
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for path in program:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def make(world: SortingWorld, tokenizer: Path, size: ModelSize, training: Training, seed: int, output: Path) -> None:
    """Train and save model, tokenizer and record; the folder appears complete or not at all."""
    model, record = fit(world, size, training, seed)
    with atomic_folder(output) as folder:
        model.save_pretrained(folder)
        AutoTokenizer.from_pretrained(tokenizer).save_pretrained(folder)
        settings = {"model": asdict(size), "training": asdict(training), "seed": seed, **record}
        (folder / "warm_start.json").write_text(json.dumps(settings, indent=1, sort_keys=True) + "\n")


def take(shared: Path, output: Path) -> None:
    """A copy of a shared warm start, so that a tier's results stay whole when the shared one is removed."""
    with atomic_folder(output) as folder:
        shutil.copytree(shared, folder, dirs_exist_ok=True)


def share(output: Path, shared: Path) -> None:
    """Keep a copy for other tiers; of two that are made at the same time the first one stays."""
    partial = shared.with_name(f"{shared.name}.{os.getpid()}.partial")
    shutil.copytree(output, partial)
    try:
        partial.rename(shared)
    except OSError:
        shutil.rmtree(partial)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m workflows.world.warm_start", description=__doc__)
    parser.add_argument("--world", type=Path, required=True, help="folder made by workflows.world.build")
    parser.add_argument("--model", required=True, help="JSON object of a ModelSize")
    parser.add_argument("--training", default="{}", help="JSON object of a Training")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--shared", type=Path, help="folder of warm starts that several tiers use, by their settings")
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    world = build.load(args.world)
    size, training = ModelSize(**json.loads(args.model)), Training(**json.loads(args.training))
    shared = args.shared / key(world, size, training, args.seed) if args.shared else None
    if shared is not None and shared.is_dir():
        print(f"[warm start] taken from {shared}: made before with the same settings", flush=True)
        take(shared, args.output)
        return 0
    make(world, args.world / "tokenizer", size, training, args.seed, args.output)
    if shared is not None:
        share(args.output, shared)
    return 0


if __name__ == "__main__":
    sys.exit(main())
