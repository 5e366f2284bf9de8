"""definition and property: the Hugging Face sampler, on models whose distribution is known."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from methods.backend.ray.rollout import join_generations
from methods.backend.rollout import sampling
from methods.backend.rollout.sampling import SamplingParameters, Share, generator, sample
from methods.backend.trainer import rank_order
from methods.support import distinct


class Constant:
    """The same logits at every position, whatever the input; counts the calls."""

    def __init__(self, logits: list[float]) -> None:
        self.logits, self.calls = torch.tensor(logits), 0

    def __call__(self, input_ids: torch.Tensor, **_: Any) -> Any:
        self.calls += 1
        return SimpleNamespace(logits=self.logits.expand(input_ids.shape[0], 1, -1), past_key_values=None)


def draw(model: Any, rows: int = 4, seed: int = 0, **parameters: Any) -> Any:
    settings = {"temperature": 1.0, "max_tokens": 5, "top_k_log_probs": 0, **parameters}
    return sample(model, [[1, 2]] * rows, SamplingParameters(**settings), {0}, 0, generator(seed))


def test_log_probs_are_at_the_temperature() -> None:
    """field case 28: logits divided by T before the softmax, and drawn from that."""
    logits = [-50.0, 2.0, 1.0, 0.0]
    out = draw(Constant(logits), rows=2000, temperature=0.5, max_tokens=1)
    expected = torch.log_softmax(torch.tensor(logits) / 0.5, dim=-1)
    assert torch.allclose(out.logp, expected[out.tokens])
    assert (out.tokens == 1).float().mean() == pytest.approx(float(expected[1].exp()), abs=0.03)


def test_greedy_takes_the_likeliest() -> None:
    assert draw(Constant([-9.0, 2.0, 1.0]), temperature=0.0).tokens.eq(1).all()


def test_lengths_include_the_end_token_or_the_whole_limit() -> None:
    """field case 7: a row without an end token has its full length, one with it ends there."""
    assert draw(Constant([9.0, -9.0])).lengths.tolist() == [1] * 4
    model = Constant([-50.0, 0.0, 0.0])
    assert draw(model).lengths.tolist() == [5] * 4 and model.calls == 5


def test_the_support_holds_the_top_k_and_the_sampled_token() -> None:
    """field case 30: K + 1 slots; as a set K ids where the sampled token is a candidate, else K + 1."""
    logits = [-50.0, 2.0, 1.9, 1.8, 1.7]
    out = draw(Constant(logits), rows=64, max_tokens=1, top_k_log_probs=2)
    logp = torch.log_softmax(torch.tensor(logits), dim=-1)
    assert out.support_ids.shape == (64, 1, 3)
    assert (out.support_ids[..., :2] == torch.tensor([1, 2])).all()
    assert torch.equal(out.support_ids[..., 2], out.tokens)
    assert torch.allclose(out.support_logp, logp[out.support_ids])
    sizes = distinct(out.support_ids).sum(-1)
    assert torch.equal(sizes, torch.where(out.tokens <= 2, 2, 3)) and len(sizes.unique()) == 2


def test_streams_are_repeatable_and_never_shared() -> None:
    """field case 54: f(seed, purpose, step, rank) is injective on what a run uses; equal paths give equal draws."""
    first = [
        float(torch.rand(1, generator=generator(seed, purpose, step, rank), dtype=torch.float64))
        for seed in range(3)
        for purpose in range(2)
        for step in range(20)
        for rank in range(4)
    ]
    assert len(set(first)) == len(first)
    assert torch.equal(draw(Constant([0.0] * 9), seed=1).tokens, draw(Constant([0.0] * 9), seed=1).tokens)
    assert not torch.equal(draw(Constant([0.0] * 9), seed=1).tokens, draw(Constant([0.0] * 9), seed=2).tokens)


def test_rows_of_a_group_differ() -> None:
    out = draw(Constant([-50.0] + [0.0] * 50), rows=8)
    assert len({tuple(row) for row in out.tokens.tolist()}) == 8


def test_left_padding_changes_no_log_prob(tiny_world: Any) -> None:
    """property: a prompt scores the same alone and beside a longer one."""
    model = AutoModelForCausalLM.from_pretrained(tiny_world.model, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(tiny_world.model)
    prompts = [
        tokenizer.apply_chat_template([{"role": "user", "content": text}], tokenize=True, return_dict=False)
        for text in ("7 5 9", "1 2 3 4 5 6")
    ]
    greedy = SamplingParameters(temperature=0.0, max_tokens=4)
    alone = sample(model, prompts[:1], greedy, {2}, 0, generator(0))
    beside = sample(model, prompts, greedy, {2}, 0, generator(0))
    width = int(alone.lengths[0])
    assert beside.tokens[0, :width].tolist() == alone.tokens[0, :width].tolist()
    assert torch.allclose(beside.logp[0, :width], alone.logp[0, :width], atol=1e-5)


def test_forced_tokens_are_scored_and_not_drawn(tiny_world: Any) -> None:
    """Replaying a model's own sample gives its log-probs and support again; the generator is not used."""
    model = AutoModelForCausalLM.from_pretrained(tiny_world.model).eval()
    prompts, parameters = [[1, 9, 8, 7, 3]] * 8, SamplingParameters(1.0, 4, 5)
    out = sample(model, prompts, parameters, {2}, 0, generator(0))
    again = sample(model, prompts, parameters, {2}, 0, generator(1), forced=out.tokens)
    assert torch.equal(again.tokens, out.tokens) and torch.equal(again.lengths, out.lengths)
    assert torch.equal(again.logp, out.logp) and torch.equal(again.support_ids, out.support_ids)
    other = (out.tokens + 1) % 45
    assert torch.equal(sample(model, prompts, parameters, set(), 0, generator(0), forced=other).tokens, other)


@pytest.mark.parametrize("ranks", [2, 3])
def test_shares_of_a_batch_draw_what_one_rank_draws(ranks: int) -> None:
    """Rows of the whole batch, by value: 7 rows over 2 or 3 ranks, of different lengths. Not: a model's rounding."""
    model = Constant([-1.0, 0.5, 0.2, 0.0])
    settings = SamplingParameters(temperature=1.0, max_tokens=5, top_k_log_probs=2)
    whole = sample(model, [[1, 2]] * 7, settings, {0}, 0, generator(3))
    bounds = [7 * i // ranks for i in range(ranks + 1)]
    parts = [
        sample(model, [[1, 2]] * (b - a), settings, {0}, 0, generator(3), share=Share(a, 7))
        for a, b in zip(bounds, bounds[1:], strict=False)
    ]
    out = join_generations(parts)
    assert out.lengths.tolist() == whole.lengths.tolist() and len(set(out.lengths.tolist())) > 1
    mask = torch.arange(whole.tokens.shape[1]) < whole.lengths.unsqueeze(1)
    for name in ("tokens", "logp", "support_ids", "support_logp"):
        assert torch.equal(getattr(out, name)[mask], getattr(whole, name)[mask]), name


def test_a_request_of_its_own_seed_draws_the_same_whatever_its_company() -> None:
    """property: six requests at once, two of them alone, and in another order."""
    model, settings = Constant([-1.0, 0.5, 0.2, 0.0]), SamplingParameters(temperature=1.0, max_tokens=5)

    def tokens(requests: list[int]) -> dict[int, list[int]]:
        out = sample(model, [[1, 2]] * len(requests), settings, {0}, 0, [generator(3, each) for each in requests])
        return {r: out.tokens[i, : out.lengths[i]].tolist() for i, r in enumerate(requests)}

    together = tokens([0, 1, 2, 3, 4, 5])
    assert tokens([4, 1]) == {each: together[each] for each in (1, 4)}
    assert tokens([5, 3, 1, 0, 2, 4]) == together
    assert len(set(map(tuple, together.values()))) > 1


@pytest.mark.parametrize("lengths", [(4, 4, 4), (4, 2, 3)])
def test_a_groups_prompt_is_prefilled_once(tiny_world: Any, lengths: tuple[int, ...], monkeypatch: Any) -> None:
    """property: the same to the last bit as a prefill of each row, with prompts of one and of several lengths."""
    model = AutoModelForCausalLM.from_pretrained(tiny_world.model, dtype=torch.bfloat16).eval()
    prompts = [list(range(5 + i, 5 + i + n)) for i, n in enumerate(lengths) for _ in range(4)]
    settings, widths = SamplingParameters(temperature=1.0, max_tokens=4, top_k_log_probs=3), []
    model.register_forward_pre_hook(lambda _, args, inputs: widths.append(len(inputs["input_ids"])), with_kwargs=True)
    shared = sample(model, prompts, settings, {2}, 0, generator(1))
    assert widths[:2] == [3, 12]
    monkeypatch.setattr(sampling, "count_copies", lambda prompts: 1)
    each = sample(model, prompts, settings, {2}, 0, generator(1))
    for name in ("tokens", "lengths", "logp", "support_ids", "support_logp"):
        assert torch.equal(getattr(shared, name), getattr(each, name)), name


def test_only_equal_groups_share_a_prefill() -> None:
    assert [sampling.count_copies(rows) for rows in ([[1]] * 3, [[1], [1], [2], [2]], [[1], [1], [2]], [[1], [2]])] == [
        3,
        2,
        1,
        1,
    ]


def test_shares_of_different_weights_are_refused() -> None:
    one = draw(Constant([-1.0, 0.5]))
    with pytest.raises(RuntimeError, match=r"different versions: \[0, 1\]"):
        join_generations([one, replace(one, version=1)])


def test_each_rank_holds_an_equal_share_of_every_mini_batch() -> None:
    """12 rows, mini-batches of 4, 2 ranks: the contiguous split gives rank 0 the first halves, rank 1 the others."""
    assert rank_order(12, 4, 2) == [0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11]
    assert rank_order(12, 4, 1) == list(range(12))
