"""Training settings that all methods of a setting share, and what is wrong with them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from methods.aggregation import MODES
from methods.backend.precisions import ROLLOUT_PRECISIONS, TRAIN_PRECISIONS
from methods.backend.rollout import engines
from methods.backend.tokens.settings import TokenSettings

RUNNERS = ("inprocess", "ray")
OVERLONG = ("error", "drop")
LEFT_OUT = ("mask_truncated", "skip_flat_groups")
# Renders a prompt as its messages' contents, one after the other and nothing between.
NO_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


class ConfigError(ValueError):
    """A setting is unknown, missing or outside its range; the message names field, value and what is allowed."""


@dataclass(frozen=True)
class Setting:
    """Training settings that all methods of a setting share.

    lr: learning rate. prompts: per step; group: responses per prompt; mini_batches: optimiser steps per training step.
    staleness: age of the rollout policy in weight syncs. steps: training steps. top_k: K of the rollout's log-probs.
    train_precision, rollout_precision: see TRAIN_PRECISIONS and ROLLOUT_PRECISIONS. micro_batch: responses per
    forward pass (default: a whole mini-batch). rollout_engine: hf or vllm, and with vllm rollout_quantization: none,
    fp8_kv, fp8_weights or int8_w8a8. validate_every, save_every, export_every: in steps (0: only at the end);
    exported checkpoints are kept and scored, the others serve an interrupted run.
    reference_kl: coefficient of verl's KL term (`kl_loss_coef`, estimator k3) to the model that training starts from,
    held in the training precision; 0 for no reference model.
    runner: `inprocess` (one process), or `ray` (verl.trainer.main_ppo on a Ray of its own) with `ranks` data-parallel
    workers; the same settings give the same metrics. server (ray only): sample in a process of its own, through verl's
    agent loops and reward workers.
    reward_special_tokens: leave special tokens (end token included) in the text that the reward is given.
    mask_truncated: responses that the length limit cut leave the loss; their rewards still count in their group.
    skip_flat_groups: groups whose rewards are all equal leave the loss. Nothing is sampled in place of either; means
    over tokens and over sequences are then over what is left of a mini-batch, and one without any has gradient 0.
    rollouts: keep each step's responses as rollouts/step_<n>.jsonl. overlong_prompts: error, or drop such rows.
    chat_template: None for the tokenizer's own, False for the messages' contents as they are, or a file.
    tokens: records tokens around optimiser steps (TokenSettings), or None.
    """

    lr: float
    prompts: int
    group: int
    mini_batches: int
    steps: int
    prompt_length: int
    response_length: int
    staleness: int = 0
    top_k: int = 20
    temperature: float = 1.0
    train_precision: str = "fp32"
    rollout_precision: str = "bf16"
    rollout_engine: str = "hf"
    rollout_quantization: str = "none"
    micro_batch: int | None = None
    validate_every: int = 0
    validate_samples: int = 1
    save_every: int = 0
    export_every: int = 0
    clip_grad: float = 1.0
    weight_decay: float = 0.0
    warmup_steps: int = 0
    loss_aggregation: str = "seq-mean-token-sum-norm"
    advantage_std: bool = False
    reference_kl: float = 0.0
    runner: str = "inprocess"
    ranks: int = 1
    server: bool = False
    reward_special_tokens: bool = False
    mask_truncated: bool = False
    skip_flat_groups: bool = False
    rollouts: bool = False
    chat_template: str | bool | None = None
    overlong_prompts: str = "error"
    tokens: TokenSettings | None = None

    def __post_init__(self) -> None:
        sizes = ("prompts", "group", "mini_batches", "steps", "prompt_length", "response_length", "validate_samples")
        for name in sizes:
            integer(name, getattr(self, name), low=1)
        # Advantages are rewards less their group's mean: of one response it is 0.
        integer("group", self.group, low=2)
        if self.micro_batch is not None:
            integer("micro_batch", self.micro_batch, low=1)
        for name in ("staleness", "top_k", "validate_every", "save_every", "export_every", "warmup_steps"):
            integer(name, getattr(self, name), low=0)
        for name in ("lr", "clip_grad", "temperature"):
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            if not (number and value > 0):
                raise ConfigError(f"setting.{name} = {value!r}: allowed is a finite number > 0")
        for name in ("reference_kl", "weight_decay"):
            _number_from_zero(f"setting.{name}", getattr(self, name))
        if self.loss_aggregation not in MODES:
            raise ConfigError(f"setting.loss_aggregation = {self.loss_aggregation!r}: allowed are {', '.join(MODES)}")
        for name, allowed in (("train_precision", TRAIN_PRECISIONS), ("rollout_precision", ROLLOUT_PRECISIONS)):
            if getattr(self, name) not in allowed:
                raise ConfigError(f"setting.{name} = {getattr(self, name)!r}: allowed are {', '.join(allowed)}")
        wrong = engines.problem(self.rollout_engine, self.rollout_quantization, self.rollout_precision)
        if wrong is not None:
            raise ConfigError(f"setting.{wrong}")
        integer("ranks", self.ranks, low=1)
        if self.runner not in RUNNERS:
            raise ConfigError(f"setting.runner = {self.runner!r}: allowed are {', '.join(RUNNERS)}")
        if self.ranks > 1 and self.runner != "ray":
            raise ConfigError(f"setting.ranks = {self.ranks}: allowed is 1 unless setting.runner is 'ray'")
        if self.server and self.runner != "ray":
            raise ConfigError("setting.server = True: allowed is False unless setting.runner is 'ray'")
        self._check_data_options()
        self._check_tokens()
        if self.export_every and (not self.save_every or self.export_every % self.save_every):
            raise ConfigError(
                f"setting.export_every = {self.export_every}: allowed is 0 or a multiple of setting.save_every = "
                f"{self.save_every}, which must then be > 0"
            )
        if self.prompts % self.mini_batches:
            raise ConfigError(
                f"setting.mini_batches = {self.mini_batches}: allowed is a divisor of setting.prompts = {self.prompts}"
            )
        if self.mini_batch_rows % self.ranks:
            raise ConfigError(
                f"setting.ranks = {self.ranks}: allowed is a divisor of the mini-batch of {self.mini_batch_rows} "
                "responses"
            )
        if self.mini_batch_rows // self.ranks % self.micro_batch_rows:
            share = "" if self.ranks == 1 else f" / {self.ranks} ranks"
            raise ConfigError(
                f"setting.micro_batch = {self.micro_batch}: allowed is a divisor of the mini-batch of "
                f"{self.mini_batch_rows} responses{share}"
            )

    def _check_data_options(self) -> None:
        for name in ("reward_special_tokens", *LEFT_OUT, "rollouts", "advantage_std", "server"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"setting.{name} = {getattr(self, name)!r}: allowed are True and False")
        if self.overlong_prompts not in OVERLONG:
            raise ConfigError(
                f"setting.overlong_prompts = {self.overlong_prompts!r}: allowed are {', '.join(OVERLONG)}"
            )
        template = self.chat_template
        if not (template is None or template is False or isinstance(template, str)):
            raise ConfigError(f"setting.chat_template = {template!r}: allowed are None, False and the path of a file")

    def _check_tokens(self) -> None:
        if self.tokens is None:
            return
        for name in LEFT_OUT:
            if getattr(self, name):
                raise ConfigError(
                    f"setting.{name} = True: allowed is False beside setting.tokens, which records all tokens"
                )
        if self.runner != "inprocess" or self.rollout_engine != "hf":
            # The truth is taken from full forward passes of both policies in the training process.
            raise ConfigError(
                "setting.tokens: allowed with setting.runner = 'inprocess' and setting.rollout_engine = 'hf'"
            )
        if self.top_k == 0:
            raise ConfigError("setting.top_k = 0: setting.tokens needs the rollout's top-K log-probs, allowed is >= 1")

    def template(self) -> str | None:
        """The chat template in place of the tokenizer's own. Raises ConfigError where its file cannot be read."""
        if not isinstance(self.chat_template, str):
            return None if self.chat_template is None else NO_TEMPLATE
        try:
            return Path(self.chat_template).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"setting.chat_template = {self.chat_template}: not readable ({error})") from None

    @property
    def mini_batch_rows(self) -> int:
        """Responses per optimiser step."""
        return self.prompts // self.mini_batches * self.group

    @property
    def micro_batch_rows(self) -> int:
        """Responses per forward pass of one rank."""
        return self.micro_batch or self.mini_batch_rows // self.ranks


def integer(name: str, value: Any, low: int) -> None:
    """Raises ConfigError where a setting is no integer >= low."""
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise ConfigError(f"{name} = {value!r}: allowed is an integer >= {low}")


def _number_from_zero(name: str, value: Any) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not (number and value >= 0):
        raise ConfigError(f"{name} = {value!r}: allowed is a finite number >= 0")
