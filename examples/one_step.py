"""A whole training step on one screen, without an engine: sample, score, centre, coefficient, step.

    python examples/one_step.py [METHOD] [--steps N]

The task: three of eight numbers, to be written in rising order. A tiny model with random weights learns it with the
loss of any method that needs no more than the rollout's top K. The reward is the share of right tokens.

Shapes: N responses in groups of one prompt, P prompt tokens, T response tokens, S slots of the top-K set, V vocabulary.
"""

import argparse
import copy

import numpy as np
import torch

from methods import registry
from methods.aggregation import aggregate, token_losses
from methods.backend.rollout.sampling import SamplingParameters, generator, sample
from methods.signals import Signals, Support, sanitise
from methods.support import distinct
from methods.vocabulary import policy_statistics
from workflows.world.sorting import SPECIALS, SortingWorld
from workflows.world.warm_start import ModelSize, make_model

WORLD = SortingWorld(numbers=3, limit=8, train_prompts=16, test_prompts=4, seed=0)
PROMPTS, GROUP, MINI_BATCHES, TOP_K, P, T = 16, 16, 4, 5, WORLD.prompt_length, WORLD.response_length
PAD, BOS, EOS, SEP = (SPECIALS.index(name) for name in ("<pad>", "<bos>", "<eos>", "<sep>"))


def train_step(policy, optimizer, method, options, numbers, step):
    """One training step on prompts of these numbers [PROMPTS, 3]; (loss of the last mini-batch, mean reward)."""
    # 1. Sample from mu: the policy's weights of this moment, rounded to bfloat16 as a rollout engine holds them.
    mu = copy.deepcopy(policy).to(torch.bfloat16).eval()
    tokens = torch.from_numpy(numbers + len(SPECIALS)).repeat_interleave(GROUP, 0)
    ends = torch.ones(len(tokens), 1, dtype=torch.int64)
    prompts = torch.cat([BOS * ends, tokens, SEP * ends], 1)  # [N, P]
    out = sample(mu, prompts.tolist(), SamplingParameters(1.0, T, TOP_K), {EOS}, PAD, generator(0, step))
    responses, logp_mu, ids = out.tokens.clone(), out.logp.clone(), out.support_ids.clone()  # [N, T], [N, T], [N, T, S]
    mask = torch.arange(responses.shape[1]) < out.lengths.unsqueeze(1)

    # 2. Score, and centre the rewards over each group: the advantages.
    right = torch.cat([tokens.sort(1).values, EOS * ends], 1)[:, : responses.shape[1]]
    rewards = ((responses == right) & mask).sum(1) / T  # [N]
    groups = rewards.view(-1, GROUP)
    advantages = (groups - groups.mean(1, keepdim=True)).flatten()

    # 3. One optimiser step for each mini-batch; from the second on pi has moved away from mu.
    for rows in torch.arange(len(prompts)).chunk(MINI_BATCHES):
        logits = policy(torch.cat([prompts[rows], responses[rows]], 1)).logits[:, P - 1 : -1]  # [n, T, V]
        logp = torch.log_softmax(logits, -1).gather(-1, responses[rows].unsqueeze(-1)).squeeze(-1)  # [n, T]
        statistics = policy_statistics(logits.detach().flatten(0, 1), ids[rows].flatten(0, 1))
        signals = sanitise(
            Signals(
                logp_pi=logp.detach(),
                logp_mu=logp_mu[rows],
                advantages=advantages[rows].unsqueeze(1).expand(logp.shape),
                response_mask=mask[rows],
                vocab_size=logits.shape[-1],
                sampled=responses[rows],
                support=Support(
                    ids[rows], out.support_logp[rows], statistics.logp.view(ids[rows].shape), distinct(ids[rows])
                ),
                sum_pi_squared=statistics.sum_pi_squared.view(logp.shape),
            )
        )
        # 4. The method: one coefficient g for each token, and the loss whose gradient is E[sum_t g_t grad log pi].
        g = method.coefficient(signals, options)
        losses = token_losses(torch.where(mask[rows], g, 0.0), logp)
        loss = aggregate(losses, mask[rows], "seq-mean-token-sum-norm", loss_scale_factor=T)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
    return loss.item(), rewards.mean().item()


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("method", nargs="?", default="dppo_topk_kl", help="as `python -m methods list` names it")
    parser.add_argument("--steps", type=int, default=40)
    args = parser.parse_args(arguments)
    method = registry.get(args.method)
    policy = make_model(WORLD, ModelSize(hidden=32, layers=1, heads=1), seed=0)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=3e-3, weight_decay=0.0)
    random = np.random.default_rng(0)
    for step in range(1, args.steps + 1):
        numbers = WORLD.draw(PROMPTS, random)
        loss, reward = train_step(policy, optimizer, method, method.configure(), numbers, step)
        print(f"step {step:2}  loss {loss:+.4f}  reward {reward:.3f}")


if __name__ == "__main__":
    main()
