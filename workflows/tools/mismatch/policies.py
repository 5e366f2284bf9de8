"""One set of weights in every trainer and every rollout: what each makes of the same tokens, as arrays.

Shapes: N responses, T tokens, n response tokens of all responses in a row, V vocabulary, K candidates.
"""

from __future__ import annotations

import contextlib
import gc
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pyarrow.parquet import ParquetFile
from torch import Tensor

from methods.backend.setting import ConfigError
from workflows.tools.toy import TOY_REWARD, toy_run

# Logits of one forward pass of a trainer, in numbers: 256 MB in float32.
LOGITS = 2**26


@dataclass(frozen=True)
class Settings:
    """prompts: rows of the data; samples: responses per prompt; top_k: K; lengths in tokens; engines: of rollouts."""

    model: Path
    data: Path
    prompts: int = 64
    samples: int = 8
    top_k: int = 20
    seed: int = 0
    prompt_length: int = 8
    response_length: int = 7
    reward: Path = TOY_REWARD
    engines: tuple[str, ...] = ("hf",)


@dataclass(frozen=True)
class Tokens:
    """What was sampled. prompts: N lists of ids; responses, mask: [N, T], mask True up to the end token."""

    prompts: list[list[int]]
    responses: Tensor
    mask: Tensor


@dataclass(frozen=True)
class Trainer:
    """pi. logp: [n, V] float32; experts: [layers, n, k], None for a dense model."""

    logp: Tensor
    experts: Tensor | None


@dataclass(frozen=True)
class Rollout:
    """mu. ids, logp: [n, K + 1], the K likeliest tokens in falling order and, last, the sampled one; experts as
    pi's.

    All that an engine tells of its distribution, whatever the vocabulary.
    """

    ids: Tensor
    logp: Tensor
    experts: Tensor | None


@contextlib.contextmanager
def worker(settings: Settings, train: str, **rollout: str) -> Iterator[tuple[Any, list[list[int]]]]:
    """verl's worker with both engines built and the weights synchronised, and the prompts' ids, one per response.

    rollout: the setting's settings of the rollout. Raises ConfigError.
    """
    from methods.backend.compose import build_trainer
    from methods.backend.rollout.batch import BatchRolloutManager
    from methods.backend.run.checks import check

    with tempfile.TemporaryDirectory() as folder:
        setting: dict[str, Any] = {
            "lr": 1e-6,
            "prompts": settings.prompts,
            "group": settings.samples,
            "mini_batches": 1,
            "steps": 1,
        }
        setting |= {"prompt_length": settings.prompt_length, "response_length": settings.response_length}
        setting |= {"top_k": settings.top_k, "train_precision": train, **rollout}
        run = toy_run(
            Path(folder),
            "run",
            setting,
            seed=settings.seed,
            model=str(settings.model),
            train_files=[str(settings.data)],
            val_files=[str(settings.data)],
            reward_function={"path": str(settings.reward)},
        )
        # Before the run's own check, which would name a setting that the caller never wrote.
        count = ParquetFile(settings.data).metadata.num_rows if settings.data.is_file() else settings.prompts
        if settings.prompts > count:
            raise ConfigError(f"--prompts {settings.prompts}: allowed is 1 to the {count} rows of {settings.data}")
        check(run)
        # The worker before this one is in cycles; of a real model two would be held.
        gc.collect()
        trainer = build_trainer(run)
        manager = BatchRolloutManager(trainer.config, trainer.worker.rollout.generate)
        trainer.actor_rollout_wg.update_weights(0)
        ids = [manager.tokenise(dict(trainer.train_dataset[i])) for i in range(settings.prompts)]
        yield trainer.worker, [prompt for prompt in ids for _ in range(settings.samples)]


def sample_tokens(rollout: Any, prompts: list[list[int]]) -> tuple[Tokens, Rollout]:
    """Responses of a rollout as it samples for training, and what it recorded of them."""
    out = rollout.generate(prompts, 0, False, 1.0)
    mask = torch.arange(out.tokens.shape[1]) < out.lengths.unsqueeze(1)
    return Tokens(prompts, out.tokens, mask), Rollout(out.support_ids[mask], out.support_logp[mask], None)


def force_tokens(rollout: Any, tokens: Tokens) -> Rollout:
    """What a Hugging Face rollout would record of given tokens: decodes them one by one, as in sampling."""
    from methods.backend.experts import record_routing
    from methods.backend.rollout.sampling import SamplingParameters, count_copies, generator, sample

    model, mask = rollout.sampling_model(), tokens.mask
    parameters = SamplingParameters(1.0, mask.shape[1], rollout.top_k)
    with record_routing(model) as calls:
        out = sample(model, tokens.prompts, parameters, set(), rollout.pad_id, generator(0), forced=tokens.responses)
    assert out.support_ids is not None and out.support_logp is not None
    rows, width = mask.shape
    experts = _stack_experts(calls, rows, width, count_copies(tokens.prompts))
    return Rollout(out.support_ids[mask], out.support_logp[mask], None if experts is None else experts[:, mask])


def _stack_experts(calls: list[Tensor], rows: int, width: int, copies: int) -> Tensor | None:
    """Calls of all layers at each decoding step to [layers, N, T, k].

    The first step's are over whole (left-padded) prompts, each of which was run once for its `copies` responses.
    """
    if not calls:
        return None
    layers = len(calls) // width
    prompts, later = calls[:layers], calls[layers:]
    first = [call.unflatten(0, (rows // copies, -1))[:, -1].repeat_interleave(copies, 0) for call in prompts]
    return torch.stack([torch.stack([first[i], *later[i::layers]], 1) for i in range(layers)])


def trainer_policy(engine: Any, tokens: Tokens) -> Trainer:
    """Forward passes of the training engine over prompts and responses, right-padded; one where the logits fit."""
    from methods.backend.experts import record_routing

    width = tokens.responses.shape[1]
    starts = torch.tensor([len(prompt) for prompt in tokens.prompts])
    ends = starts + tokens.mask.sum(1)
    ids = torch.zeros(len(starts), int(starts.max()) + width, dtype=torch.int64)
    for row, (prompt, response) in enumerate(zip(tokens.prompts, tokens.responses, strict=True)):
        ids[row, : len(prompt)] = torch.tensor(prompt)
        ids[row, len(prompt) : len(prompt) + width] = response
    places = torch.arange(ids.shape[1]).expand(ids.shape)
    # The row before a response token predicts it.
    predicts = (places >= starts.unsqueeze(1) - 1) & (places < ends.unsqueeze(1) - 1)
    rows = max(1, LOGITS // (ids.shape[1] * engine.module.config.vocab_size))
    logps, experts = [], []
    for part in torch.arange(len(ids)).split(rows):
        with record_routing(engine.module) as layers:
            logits = engine.logits(ids[part], (places[part] < ends[part].unsqueeze(1)).long(), places[part])
        logps.append(torch.log_softmax(logits[predicts[part]], -1))
        if layers:
            experts.append(torch.stack(layers).unflatten(1, ids[part].shape)[:, predicts[part]])
    return Trainer(torch.cat(logps), torch.cat(experts, 1) if experts else None)
