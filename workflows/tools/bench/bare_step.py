"""One training step in plain PyTorch, on one screen: sample, score, centre, and one update per mini-batch.

The lower bound that `bench` measures verl's trainer against: a transformers model, padded batches, this package's
sampler and methods, AdamW; no engine, no queue, no worker, no metrics. Its losses are the trainer's (a test).

Shapes: N responses of a step in groups of one prompt, P prompt tokens (padded left), T response tokens (padded right),
S support slots, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from methods import registry
from methods.aggregation import aggregate, token_losses
from methods.backend.rollout.sampling import SamplingParameters, generator, sample
from methods.signals import Signals, Support, sanitise
from methods.support import distinct
from methods.vocabulary import policy_statistics


@dataclass(frozen=True)
class Rollouts:
    """prompts [N, P] and prompt_mask; responses [N, T] and mask; logp_mu [N, T]; support ids and log-probs [N, T, S];
    advantages [N]."""

    prompts: Tensor
    prompt_mask: Tensor
    responses: Tensor
    mask: Tensor
    logp_mu: Tensor
    support_ids: Tensor
    support_logp_mu: Tensor
    advantages: Tensor


class BareLoop:
    """A policy in float32, its bfloat16 copies of the last `staleness` + 1 steps, and AdamW.

    tokenise: a row of the data to prompt ids. score: (rows, generation) to a list of rewards. For methods that need no
    more than the rollout's top K.
    """

    def __init__(
        self, run: Any, tokenise: Callable[[Any], list[int]], score: Callable[[Any, Any], list[float]]
    ) -> None:
        self.setting, self.seed, self.tokenise, self.score = run.setting, run.seed, tokenise, score
        self.method = registry.get(run.method)
        self.options = self.method.configure(run.options)
        load = AutoModelForCausalLM.from_pretrained
        self.policy = load(run.model, dtype=torch.float32, attn_implementation="sdpa").train()
        self.sampler = load(run.model, dtype=torch.bfloat16, attn_implementation="sdpa").eval()
        self.optimizer = torch.optim.AdamW(
            self.policy.parameters(), lr=self.setting.lr, weight_decay=self.setting.weight_decay
        )
        self.ring: list[dict[str, Tensor]] = []
        self.keep_weights()

    def step(self, rows: list[Any], step: int) -> list[float]:
        """One training step on these prompts; the loss of each mini-batch."""
        losses = self.update(self.sample(rows, step))
        self.keep_weights()
        return losses

    def keep_weights(self) -> None:
        """The weights that will sample `staleness` steps from now."""
        weights = {name: w.to(torch.bfloat16, copy=True) for name, w in self.policy.state_dict().items()}
        self.ring = [*self.ring, weights][-self.setting.staleness - 1 :]

    def sample(self, rows: list[Any], step: int) -> Rollouts:
        """A group of responses to each prompt, with rewards centred over the group as advantages."""
        group, settings = self.setting.group, self.policy.config
        self.sampler.load_state_dict(self.ring[0])
        prompts = [ids for row in rows for ids in [self.tokenise(row)] * group]
        parameters = SamplingParameters(1.0, self.setting.response_length, self.setting.top_k)
        pad_id = settings.pad_token_id or 0
        out = sample(self.sampler, prompts, parameters, {settings.eos_token_id}, pad_id, generator(self.seed, step))
        rewards = torch.tensor(self.score([row for row in rows for _ in range(group)], out)).view(-1, group)
        width = max(map(len, prompts))
        padded = [[pad_id] * (width - len(ids)) + ids for ids in prompts]
        mask = torch.arange(out.tokens.shape[1]) < out.lengths.unsqueeze(1)
        assert out.support_ids is not None and out.support_logp is not None
        # Clones: what comes out of inference mode takes no part in a backward pass.
        return Rollouts(
            torch.tensor(padded),
            torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids in prompts]),
            torch.where(mask, out.tokens, 0),
            mask,
            out.logp.clone(),
            out.support_ids.clone(),
            out.support_logp.clone(),
            (rewards - rewards.mean(1, keepdim=True)).flatten(),
        )

    def update(self, rollouts: Rollouts) -> list[float]:
        """One pass of consecutive mini-batches; the loss of each."""
        losses = []
        for part in torch.arange(len(rollouts.prompts)).chunk(self.setting.mini_batches):
            loss = self.loss(Rollouts(**{name: column[part] for name, column in vars(rollouts).items()}))
            self.optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.policy.parameters(), self.setting.clip_grad)
            self.optimizer.step()
            losses.append(loss.item())
        return losses

    def loss(self, part: Rollouts) -> Tensor:
        """-sum_t g_t log pi(y_t), aggregated; the method's coefficient g without gradient."""
        attention = torch.cat([part.prompt_mask, part.mask.long()], 1)
        logits = self.policy(
            input_ids=torch.cat([part.prompts, part.responses], 1),
            attention_mask=attention,
            position_ids=(attention.cumsum(1) - 1).clamp(min=0),
            use_cache=False,
        ).logits[:, part.prompts.shape[1] - 1 : -1]
        logp = torch.log_softmax(logits, -1).gather(-1, part.responses.unsqueeze(-1)).squeeze(-1)
        ids = part.support_ids
        statistics = policy_statistics(logits.detach().flatten(0, 1), ids.flatten(0, 1))
        signals = sanitise(
            Signals(
                logp_pi=logp.detach(),
                logp_mu=part.logp_mu,
                advantages=part.advantages.unsqueeze(1).expand(logp.shape),
                response_mask=part.mask,
                vocab_size=logits.shape[-1],
                sampled=part.responses,
                support=Support(ids, part.support_logp_mu, statistics.logp.view(ids.shape), distinct(ids)),
                sum_pi_squared=statistics.sum_pi_squared.view(logp.shape),
                entropy=statistics.entropy.view(logp.shape),
            )
        )
        coefficient = torch.where(part.mask, self.method.coefficient(signals, self.options), 0.0)
        horizon = self.setting.response_length
        return aggregate(
            token_losses(coefficient, logp), part.mask, self.setting.loss_aggregation, loss_scale_factor=horizon
        )
