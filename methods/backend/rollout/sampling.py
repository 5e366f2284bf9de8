"""Sampling with a Hugging Face causal model: tokens, their log-probs, and the support of each position, as arrays.

Shapes: N sequences, P prompt width, T response width, K candidates, S = K + 1 support slots, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class SamplingParameters:
    """temperature > 0, or 0 for greedy; max_tokens: response limit; top_k_log_probs: K, 0 for none."""

    temperature: float
    max_tokens: int
    top_k_log_probs: int = 0


@dataclass(frozen=True)
class Generation:
    """Sampled responses, right-padded to the longest.

    tokens: [N, T] int64; lengths: [N] int64, the end token included; logp: [N, T] float32 at the temperature.
    support_ids: [N, T, S] int64 and support_logp: [N, T, S] float32, or None: the K likeliest tokens in falling
    order, and in the last slot the sampled token (a repeated id where it is among them).
    version: of the weights that sampled (global step).
    """

    tokens: Tensor
    lengths: Tensor
    logp: Tensor
    support_ids: Tensor | None
    support_logp: Tensor | None
    version: int


@dataclass(frozen=True)
class Share:
    """Rows `start`, `start` + 1, ... of a batch of `total` rows."""

    start: int
    total: int


def generator(seed: int, *path: int) -> torch.Generator:
    """A random generator for one purpose: different paths never share a stream, the same path always does."""
    state = np.random.SeedSequence(entropy=seed, spawn_key=path).generate_state(2, np.uint32)
    return torch.Generator().manual_seed(int(state[0]) << 32 | int(state[1]))


@torch.inference_mode()
def sample(
    model: Any,
    prompts: list[list[int]],
    parameters: SamplingParameters,
    end_ids: set[int],
    pad_id: int,
    random: torch.Generator | list[torch.Generator],
    version: int = 0,
    forced: Tensor | None = None,
    share: Share | None = None,
) -> Generation:
    """Sample one response per prompt with a key-value cache. Prompts are left-padded; log-probs are float32.

    forced: [N, T], T >= max_tokens, tokens to take in place of drawing, for log-probs of what another policy sampled.
    random: for the batch, or one for each prompt. share: where these prompts stand in a batch that several ranks
    sample; they draw as one rank would for all of it.
    """
    share = share or Share(0, len(prompts))
    ids, mask = _left_pad(prompts, pad_id)
    position = (mask.cumsum(1) - 1).clamp(min=0)
    ends = torch.tensor(sorted(end_ids))
    alive = torch.ones(len(prompts), dtype=torch.bool)
    lengths = torch.zeros(len(prompts), dtype=torch.int64)
    tokens, logps, candidate_ids, candidate_logps = [], [], [], []
    cache, step_ids, copies = None, ids, count_copies(prompts)
    for place in range(parameters.max_tokens):
        # A group's responses share their prompt, which is run through the model once.
        shared = copies if place == 0 else 1
        out = model(
            input_ids=step_ids[::shared],
            attention_mask=mask[::shared],
            position_ids=position[::shared],
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        cache = out.past_key_values
        logits = out.logits[:, -1].float()
        if shared > 1:
            logits = logits.repeat_interleave(shared, 0)
            if cache is not None:
                cache.batch_repeat_interleave(shared)
        logp = torch.log_softmax(logits / parameters.temperature if parameters.temperature > 0 else logits, dim=-1)
        if forced is not None:
            chosen = forced[:, place]
        else:
            chosen = logp.argmax(-1) if parameters.temperature == 0 else _draw(logp, random, share)
        tokens.append(chosen)
        logps.append(logp.gather(1, chosen.unsqueeze(1)).squeeze(1))
        if parameters.top_k_log_probs:
            values, indices = logp.topk(parameters.top_k_log_probs, dim=-1)
            candidate_ids.append(indices)
            candidate_logps.append(values)
        lengths += alive
        alive &= ~torch.isin(chosen, ends)
        if not alive.any():
            break
        step_ids = chosen.unsqueeze(1)
        mask = torch.cat([mask, torch.ones_like(step_ids)], dim=1)
        position = position[:, -1:] + 1
    sampled, sampled_logp = torch.stack(tokens, 1), torch.stack(logps, 1)
    support_ids = support_logp = None
    if parameters.top_k_log_probs:
        support_ids, support_logp = _with_sampled(
            torch.stack(candidate_ids, 1), torch.stack(candidate_logps, 1), sampled, sampled_logp
        )
    return Generation(sampled, lengths, sampled_logp, support_ids, support_logp, version)


def count_copies(prompts: list[list[int]]) -> int:
    """How often each prompt stands in a row, where that is the same for all of them; else 1."""
    copies = next((i for i, prompt in enumerate(prompts) if prompt != prompts[0]), len(prompts))
    return copies if prompts == [prompt for prompt in prompts[::copies] for _ in range(copies)] else 1


def _left_pad(prompts: list[list[int]], pad_id: int) -> tuple[Tensor, Tensor]:
    width = max(len(prompt) for prompt in prompts)
    if all(len(prompt) == width for prompt in prompts):
        ids = torch.tensor(prompts)
        return ids, torch.ones_like(ids)
    ids = torch.full((len(prompts), width), pad_id)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) :] = torch.tensor(prompt)
        mask[row, width - len(prompt) :] = 1
    return ids, mask


def _draw(logp: Tensor, random: torch.Generator | list[torch.Generator], share: Share) -> Tensor:
    """One draw per row by the exponential race, which needs no normalised probabilities."""
    if isinstance(random, list):
        race = torch.stack([logp.new_empty(logp.shape[1]).exponential_(generator=own) for own in random])
    else:
        race = logp.new_empty(share.total, logp.shape[1]).exponential_(generator=random)
        race = race[share.start : share.start + len(logp)]
    return (logp - race.log()).argmax(-1)


def _with_sampled(ids: Tensor, logp: Tensor, sampled: Tensor, sampled_logp: Tensor) -> tuple[Tensor, Tensor]:
    """Append the sampled token as last slot; `methods.support.distinct` drops it where it repeats a candidate."""
    return torch.cat([ids, sampled.unsqueeze(-1)], -1), torch.cat([logp, sampled_logp.unsqueeze(-1)], -1)
