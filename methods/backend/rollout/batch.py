"""verl's agent-loop manager for single-turn tasks: one whole batch at a time, results as columns of arrays.

verl's own manager runs one coroutine, one reward call and one queue entry per sample (about 10 ms each); a batch of
single-turn responses needs none of that. Selected by `rollout.agent.agent_loop_manager_class`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

import torch
import transfer_queue as tq
from tensordict import NonTensorData, NonTensorStack, TensorDict
from torch import Tensor
from verl.trainer.ppo.reward import get_custom_reward_fn
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.reward_score import default_compute_score

from methods.backend.rollout.reward import RewardError, score_response
from methods.backend.rollout.sampling import Generation

# (prompts, step, validate, temperature) -> Generation
Generate = Callable[[list[list[int]], int, bool, float], Generation]

SUPPORT_IDS, SUPPORT_LOGP = "rollout_support_ids", "rollout_support_log_probs"


class BatchRolloutManager:
    """Samples n responses per prompt, scores them, and puts one row per response into the transfer queue."""

    def __init__(self, config: Any, generate: Generate) -> None:
        self.rollout_config = config.actor_rollout_ref.rollout
        self.tokenizer = omega_conf_to_dataclass(config.actor_rollout_ref.model).tokenizer
        self.reward_fn = get_custom_reward_fn(config) or default_compute_score
        self.generate = generate
        # Per-row objects cost more than the sampling; in training only these two features of verl read them.
        filtered = config.algorithm.get("filter_groups")
        custom = self.rollout_config.get("custom") or {}
        self.keeps_context = bool(
            config.trainer.get("rollout_data_dir") or custom.get("rollouts") or (filtered and filtered.enable)
        )
        self.special_tokens = bool(custom.get("special_tokens"))
        self._groups = _Counter()

    @classmethod
    def create(cls, config: Any, llm_client: Any, **_: Any) -> BatchRolloutManager:
        """How verl's task runner (main_ppo.py:125) makes its manager; the client is the trainer's `get_llm_client`."""
        return cls(config, llm_client.generate)

    def generate_sequences(self, prompts: TensorDict) -> None:
        """The method that verl's trainer calls for each training and validation batch."""
        validate = bool(_plain(prompts.get("validate", False)))
        partition = "val" if validate else "train"
        step = int(_plain(prompts["global_steps"]))
        rows = _rows(prompts)
        settings = self.rollout_config.val_kwargs if validate else self.rollout_config
        greedy = validate and not settings.do_sample
        repeated = [row for row in rows for _ in range(settings.n)]
        keys = [f"{row['uid']}_{i}_0" for row in rows for i in range(settings.n)]
        prompt_ids = [ids for row in rows for ids in [self.tokenise(row)] * settings.n]
        out = self.generate(prompt_ids, step, validate, 0.0 if greedy else settings.temperature)
        scores, extras = self.score(repeated, out)
        fields = columns(prompt_ids, out, scores)
        fields["num_turns"] = torch.full((len(keys),), 2)
        if validate or self.keeps_context:
            fields["uid"] = NonTensorStack(*[row["uid"] for row in repeated])
            for name in ("data_source", "reward_model"):
                fields[name] = NonTensorStack(*[row[name] for row in repeated])
            fields["extra_fields"] = NonTensorStack(*[{"reward_extra_info": extra} for extra in extras])
        else:
            # verl groups by equality alone; an object per row costs 0.1 ms.
            fields["uid"] = self._groups.take(len(rows)).repeat_interleave(settings.n)
        tq.kv_batch_put(
            keys=keys,
            partition_id=partition,
            fields=TensorDict(fields, batch_size=[len(keys)]),
            tags=[
                {
                    "status": "success",
                    "prompt_len": len(ids),
                    "response_len": length,
                    "seq_len": len(ids) + length,
                    "global_steps": step,
                    "min_global_steps": out.version,
                    "max_global_steps": out.version,
                }
                for ids, length in zip(prompt_ids, out.lengths.tolist(), strict=True)
            ],
        )
        finished = {"is_prompt": True, "status": "finished", "global_steps": step}
        tq.kv_batch_put(keys=[row["uid"] for row in rows], partition_id=partition, tags=[dict(finished) for _ in rows])

    def tokenise(self, row: dict[str, Any]) -> list[int]:
        """Prompt ids of one row by the chat template. Raises ValueError for a prompt longer than allowed."""
        ids = self.tokenizer.apply_chat_template(
            list(row["raw_prompt"]), add_generation_prompt=True, tokenize=True, return_dict=False
        )
        if len(ids) > self.rollout_config.prompt_length:
            raise ValueError(
                f"prompt {row.get('extra_info')} has {len(ids)} tokens, data.max_prompt_length = "
                f"{self.rollout_config.prompt_length}"
            )
        return list(ids)

    def score(self, rows: list[dict[str, Any]], out: Generation) -> tuple[list[float], list[dict[str, Any]]]:
        """Reward and extra information of each sampled response."""
        responses = [tokens[:length] for tokens, length in zip(out.tokens.tolist(), out.lengths.tolist(), strict=True)]
        texts = self.tokenizer.batch_decode(responses, skip_special_tokens=not self.special_tokens)
        scores, extras = [], []
        for row, text in zip(rows, texts, strict=True):
            try:
                score, extra = score_response(self.reward_fn, row, text)
            except RewardError as error:
                raise RewardError(f"reward of the prompt {row.get('extra_info')}: {error}") from error
            scores.append(score)
            extras.append({"acc": score, **extra})
        return scores, extras


def _plain(value: Any) -> Any:
    return value.data if isinstance(value, NonTensorData) else value


def _rows(prompts: TensorDict) -> list[dict[str, Any]]:
    columns: dict[str, list[Any]] = {}
    for name, column in prompts.items():
        if isinstance(column, Tensor):
            columns[name] = list(column)
        elif isinstance(column, NonTensorData):
            columns[name] = [column.data] * len(prompts)
        else:
            columns[name] = list(column.tolist())
    return [{name: values[i] for name, values in columns.items()} for i in range(len(prompts))]


def to_jagged(rows: Tensor, lengths: Tensor) -> Tensor:
    """Right-padded [N, T, ...] to a to_jagged nested tensor [N, lengths, ...]."""
    keep = torch.arange(rows.shape[1]).unsqueeze(0) < lengths.unsqueeze(1)
    return _packed_to_jagged(rows[keep], lengths)


def _packed_to_jagged(values: Tensor, lengths: Tensor) -> Tensor:
    """Packed rows to a to_jagged nested tensor; without the extremes torch would pad it to the sum of all lengths."""
    offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    return torch.nested.nested_tensor_from_jagged(
        values, offsets, min_seqlen=int(lengths.min()), max_seqlen=int(lengths.max())
    )


def like(column: Tensor, values: Tensor) -> Tensor:
    """Packed values as a to_jagged column over the rows of another."""
    lengths = column.offsets().diff()
    return torch.nested.nested_tensor_from_jagged(
        values, column.offsets(), min_seqlen=int(lengths.min()), max_seqlen=int(lengths.max())
    )


class _Counter:
    """Numbers that no prompt of this process had before."""

    def __init__(self) -> None:
        self._next = 0

    def take(self, count: int) -> Tensor:
        """[count] int64."""
        self._next += count
        return torch.arange(self._next - count, self._next)


def columns(prompt_ids: list[list[int]], out: Generation, scores: list[float]) -> dict[str, Any]:
    """The tensor columns of verl's batch, each to_jagged over the rows; one set of offsets per kind of column."""
    prompt_lengths = torch.tensor([len(ids) for ids in prompt_ids])
    prompts = _packed_to_jagged(torch.tensor(list(chain.from_iterable(prompt_ids))), prompt_lengths)
    inside = torch.arange(out.tokens.shape[1]).unsqueeze(0) < out.lengths.unsqueeze(1)
    responses = _packed_to_jagged(out.tokens[inside], out.lengths)
    # Packed sequences: each token's place in its own, and whether it is one of the prompt's.
    lengths = prompt_lengths + out.lengths
    places = torch.arange(int(lengths.sum())) - (lengths.cumsum(0) - lengths).repeat_interleave(lengths)
    in_prompt = places < prompt_lengths.repeat_interleave(lengths)
    tokens = torch.empty_like(places)
    tokens[in_prompt], tokens[~in_prompt] = prompts.values(), responses.values()
    sequences = _packed_to_jagged(tokens, lengths)
    rewards = torch.zeros(out.tokens.shape)
    # verl sums token-level rewards per response; an outcome reward stands at the last token.
    rewards[torch.arange(len(scores)), out.lengths - 1] = torch.tensor(scores)
    ones = like(responses, torch.ones_like(responses.values()))
    columns = {
        "prompts": prompts,
        "responses": responses,
        "response_mask": ones,
        "loss_mask": ones,
        "input_ids": sequences,
        "position_ids": like(sequences, places),
        "rollout_log_probs": like(responses, out.logp[inside]),
        "rm_scores": like(responses, rewards[inside]),
    }
    if out.support_ids is not None and out.support_logp is not None:
        columns[SUPPORT_IDS] = like(responses, out.support_ids[inside])
        columns[SUPPORT_LOGP] = like(responses, out.support_logp[inside])
    return columns
