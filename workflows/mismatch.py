"""The gap between trainer and rollout before any update, for every pair of precisions, on one set of sampled tokens.

The rollout in bfloat16 samples once. Then each rollout model decodes these tokens with its key-value cache (log mu) and
each trainer's engine runs them in one forward pass (log pi), as they do in a training; both hold the same weights.
Everything else is arithmetic on two tables of log-probs per precision.

Shapes: N responses, T tokens, V vocabulary, K candidates, S = K + 1 support slots.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from pyarrow.parquet import ParquetFile
from torch import Tensor

from eval.files import write_csv, write_text
from methods.backend.recipe import ROLLOUT_PRECISIONS, TRAIN_PRECISIONS, Cell, CellError
from methods.measures import FORWARD_KL, reduced_value
from methods.signals import Support
from methods.support import masses, united

SAMPLER = "bf16"
REWARD = Path(__file__).parent / "world" / "reward.py"


@dataclass(frozen=True)
class Settings:
    """prompts: rows of the data; samples: responses per prompt; top_k: K; lengths in tokens."""

    model: Path
    data: Path
    prompts: int = 64
    samples: int = 8
    top_k: int = 20
    seed: int = 0
    prompt_length: int = 8
    response_length: int = 7


@dataclass(frozen=True)
class Tokens:
    """What was sampled. prompts: N lists of ids; responses, mask: [N, T], mask True up to the end token."""

    prompts: list[list[int]]
    responses: Tensor
    mask: Tensor


@dataclass(frozen=True)
class Policy:
    """logp: [N, T, V] float32 of the tokens' distributions; experts: [layers, N, T, k], None for a dense model."""

    logp: Tensor
    experts: Tensor | None


def run(args: argparse.Namespace) -> int:
    """The command: measure, write mismatch.csv and mismatch.txt, print the table."""
    if (args.model is None) != (args.data is None):
        print("error: --model and --data go together: give both, or none to warm-start a toy model", file=sys.stderr)
        return 2
    names = ("prompts", "samples", "top_k", "seed", "prompt_length", "response_length")
    given = {name: getattr(args, name) for name in names}
    try:
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
            model, data = (args.model, args.data) if args.model is not None else warm_start(Path(folder), args.kind)
            rows = measure(Settings(model=model, data=data, **given))
    except CellError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    title = (
        f"{args.model or args.kind}, before any update: {rows[0]['tokens']} tokens, K = {args.top_k}, seed {args.seed}"
    )
    text = f"{title}\n\n{render(rows)}"
    write_csv(args.output / "mismatch.csv", list(rows[0]), rows)
    write_text(args.output / "mismatch.txt", text)
    print(text)
    return 0


def warm_start(folder: Path, kind: str, test_prompts: int = 512) -> tuple[Path, Path]:
    """The toy tier's world and model, made in a folder: (model directory, test data). About 25 seconds."""
    from transformers import AutoTokenizer

    from workflows.world import build, warm_start
    from workflows.world.sorting import SortingWorld

    world = SortingWorld(numbers=6, limit=200, train_prompts=64, test_prompts=test_prompts, seed=0)
    build.write(world, folder / "world")
    size = warm_start.ModelSize(hidden=64, layers=2, heads=2, kind=kind)
    model, _ = warm_start.fit(world, size, warm_start.Training(), seed=0)
    model.save_pretrained(folder / "model")
    AutoTokenizer.from_pretrained(folder / "world" / "tokenizer").save_pretrained(folder / "model")
    return folder / "model", folder / "world" / "test.parquet"


def measure(settings: Settings) -> list[dict[str, Any]]:
    """One row per pair of precisions, trainers outside, in the order of the recipe."""
    tokens, trainers, rollouts = policies(settings)
    return [
        {"train": train, "rollout": rollout, **gap(trainers[train], rollouts[rollout], tokens, settings.top_k)}
        for train in TRAIN_PRECISIONS
        for rollout in ROLLOUT_PRECISIONS
    ]


def policies(settings: Settings) -> tuple[Tokens, dict[str, Policy], dict[str, Policy]]:
    """The sampled tokens, and what each trainer and each rollout makes of them. One real worker per precision."""
    tokens: Tokens | None = None
    trainers: dict[str, Policy] = {}
    rollouts: dict[str, Policy] = {}
    # The sampler's precision comes first, since its tokens are what all others are asked about.
    others = [name for name in ROLLOUT_PRECISIONS if name != SAMPLER]
    for train, rollout in zip_longest(TRAIN_PRECISIONS, [SAMPLER, *others]):
        with worker(settings, train or SAMPLER, rollout or SAMPLER) as (built, prompts):
            tokens = tokens or sampled(built.rollout, prompts)
            if train is not None:
                trainers[train] = trainer_policy(built.actor.engine, tokens)
            if rollout is not None:
                rollouts[rollout] = rollout_policy(built.rollout, tokens)
    assert tokens is not None
    return tokens, trainers, rollouts


@contextlib.contextmanager
def worker(settings: Settings, train: str, rollout: str) -> Iterator[tuple[Any, list[list[int]]]]:
    """verl's worker with both engines built and the weights synchronised, and the prompts' ids, one per response."""
    from methods.backend.batch_rollout import BatchRolloutManager
    from methods.backend.launch import build_trainer
    from methods.backend.preflight import check

    with tempfile.TemporaryDirectory() as folder:
        panel: dict[str, Any] = {
            "lr": 1e-6,
            "prompts": settings.prompts,
            "group": settings.samples,
            "mini_batches": 1,
            "steps": 1,
        }
        panel |= {"prompt_length": settings.prompt_length, "response_length": settings.response_length}
        panel |= {"top_k": settings.top_k, "train_precision": train, "rollout_precision": rollout}
        cell = Cell.build(
            {
                "label": "mismatch",
                "method": "dppo_topk_kl",
                "seed": settings.seed,
                "panel": panel,
                "model": str(settings.model),
                "train_files": [str(settings.data)],
                "val_files": [str(settings.data)],
                "reward_function": {"path": str(REWARD)},
                "output": f"{folder}/run",
            }
        )
        # Before the cell's own check, which would name a panel that the caller never wrote.
        count = ParquetFile(settings.data).metadata.num_rows if settings.data.is_file() else settings.prompts
        if settings.prompts > count:
            raise CellError(f"--prompts {settings.prompts}: allowed is 1 to the {count} rows of {settings.data}")
        check(cell)
        trainer = build_trainer(cell)
        manager = BatchRolloutManager(trainer.config, trainer.worker.rollout.generate)
        trainer.actor_rollout_wg.update_weights(0)
        ids = [manager.tokenise(dict(trainer.train_dataset[i])) for i in range(settings.prompts)]
        yield trainer.worker, [prompt for prompt in ids for _ in range(settings.samples)]


def sampled(rollout: Any, prompts: list[list[int]]) -> Tokens:
    """Responses of the rollout as it samples for training."""
    out = rollout.generate(prompts, 0, False, 1.0)
    return Tokens(prompts, out.tokens, torch.arange(out.tokens.shape[1]) < out.lengths.unsqueeze(1))


def rollout_policy(rollout: Any, tokens: Tokens) -> Policy:
    """Decodes the tokens one by one, as in sampling."""
    from methods.backend.experts import recording
    from methods.backend.sampling import SamplingParameters, generator, sample

    model = rollout.sampling_model()
    vocabulary, width = model.config.vocab_size, tokens.responses.shape[1]
    parameters = SamplingParameters(1.0, width, vocabulary)
    with recording(model) as calls:
        out = sample(model, tokens.prompts, parameters, set(), rollout.pad_id, generator(0), forced=tokens.responses)
    assert out.support_ids is not None and out.support_logp is not None
    # The last slot repeats the sampled token.
    ids, logp = out.support_ids[..., :-1], out.support_logp[..., :-1]
    return Policy(torch.empty_like(logp).scatter_(-1, ids, logp), _decoded_experts(calls, *tokens.responses.shape))


def _decoded_experts(calls: list[Tensor], rows: int, width: int) -> Tensor | None:
    """Calls of all layers at each decoding step, the first with whole (left-padded) prompts, to [layers, N, T, k]."""
    if not calls:
        return None
    layers = len(calls) // width
    steps = [torch.stack([call.unflatten(0, (rows, -1))[:, -1] for call in calls[i::layers]], 1) for i in range(layers)]
    return torch.stack(steps)


def trainer_policy(engine: Any, tokens: Tokens) -> Policy:
    """One forward pass of the training engine over prompts and responses, right-padded."""
    from methods.backend.experts import recording

    width = tokens.responses.shape[1]
    starts = torch.tensor([len(prompt) for prompt in tokens.prompts])
    ends = starts + tokens.mask.sum(1)
    ids = torch.zeros(len(starts), int(starts.max()) + width, dtype=torch.int64)
    for row, (prompt, response) in enumerate(zip(tokens.prompts, tokens.responses, strict=True)):
        ids[row, : len(prompt)] = torch.tensor(prompt)
        ids[row, len(prompt) : len(prompt) + width] = response
    places = torch.arange(ids.shape[1]).expand(ids.shape)
    with recording(engine.module) as layers:
        logits = engine.logits(ids, (places < ends.unsqueeze(1)).long(), places)
    # The row before a response token predicts it.
    rows = (starts - 1).unsqueeze(1) + torch.arange(width)
    logp = torch.log_softmax(logits, -1)[torch.arange(len(ids)).unsqueeze(1), rows]
    experts = None
    if layers:
        chosen = torch.stack(layers).unflatten(1, ids.shape)
        experts = chosen[:, torch.arange(len(ids)).unsqueeze(1), rows]
    return Policy(logp, experts)


def gap(trainer: Policy, rollout: Policy, tokens: Tokens, top_k: int) -> dict[str, Any]:
    """The numbers of one row; all are over response tokens, log-probs in nats."""
    mask, responses = tokens.mask, tokens.responses
    pi, mu = trainer.logp[mask], rollout.logp[mask]
    sampled_ids = responses[mask].unsqueeze(-1)
    pi_sampled, mu_sampled = pi.gather(-1, sampled_ids), mu.gather(-1, sampled_ids)
    candidates = mu.topk(top_k, -1).indices
    ids, valid = united(candidates, sampled_ids.squeeze(-1))
    support = Support(ids=ids, logp_mu=mu.gather(-1, ids), logp_pi=pi.gather(-1, ids), valid=valid)
    held = masses(support)
    retained = torch.where(valid, (support.logp_pi - support.logp_mu).abs(), 0.0).amax(-1)
    common = _in_common(candidates, pi.topk(top_k, -1).indices)
    row: dict[str, Any] = {"tokens": int(mask.sum())}
    for name, values in (("logp_sampled", (pi_sampled - mu_sampled).abs().squeeze(-1)), ("logp_topk", retained)):
        row |= {
            f"{name}_mean": float(values.double().mean()),
            f"{name}_p99": float(values.double().quantile(0.99)),
            f"{name}_max": float(values.max()),
        }
    row["prob_sampled_mean"] = float((pi_sampled.exp() - mu_sampled.exp()).abs().double().mean())
    row["reduced_kl_mean"] = float(
        reduced_value(FORWARD_KL, held.mu, held.pi, held.mu_tail, held.pi_tail).double().mean()
    )
    row["topk_shared"] = float(common.double().mean())
    row["routing_differences"] = None
    if trainer.experts is not None and rollout.experts is not None:
        differ = (trainer.experts != rollout.experts).any(-1)[:, mask]
        row["routing_differences"] = float(differ.double().mean())
    return row


def _in_common(one: Tensor, other: Tensor) -> Tensor:
    """Share of the ids of a row that the other row holds too: [n, K] twice to [n]."""
    return (one.unsqueeze(-1) == other.unsqueeze(-2)).any(-1).float().mean(-1)


HEADINGS = {
    "train": "train",
    "rollout": "rollout",
    "logp_sampled_mean": "|dlogp|",
    "logp_sampled_p99": "p99",
    "logp_sampled_max": "max",
    "logp_topk_mean": "top-K",
    "logp_topk_max": "max",
    "prob_sampled_mean": "|pi-mu|",
    "reduced_kl_mean": "KL",
    "topk_shared": "shared",
    "routing_differences": "routing",
}


def render(rows: list[dict[str, Any]]) -> str:
    """The table as text. |dlogp|: of the sampled token; top-K: the largest over a token's support, mean over tokens."""
    shown = [name for name in HEADINGS if any(row[name] is not None for row in rows)]
    lines = [[HEADINGS[name] for name in shown]]
    for row in rows:
        values = [row[name] for name in shown]
        lines.append([value if isinstance(value, str) else f"{value:.3g}" for value in values])
    return "".join("".join(f"{text:>10}" for text in line).rstrip() + "\n" for line in lines)
