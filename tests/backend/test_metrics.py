"""definition and property: metrics are of tokens, whatever the split into micro-batches."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from methods.backend.metrics import TokenMetrics
from methods.signals import Signals, Support
from methods.support import with_sampled


def signals(rows: slice = slice(None), seed: int = 0) -> tuple[Signals, torch.Tensor]:
    """Random off-policy tokens on a vocabulary of 12 with 4 candidates, and a coefficient that drops some."""
    random = torch.Generator().manual_seed(seed)
    logits = torch.randn(8, 6, 12, generator=random)
    mu = torch.log_softmax(logits, -1)
    pi = torch.log_softmax(logits + 0.7 * torch.randn(8, 6, 12, generator=random), -1)
    sampled = torch.multinomial(mu.exp().view(48, 12), 1, generator=random).view(8, 6)
    ids, valid = with_sampled(mu.topk(4, -1).indices, sampled)
    mask = torch.rand(8, 6, generator=random) < 0.8
    advantages = torch.randn(8, 1, generator=random).expand(8, 6) * (torch.arange(8) % 4 != 0).float().unsqueeze(1)
    out = Signals(
        logp_pi=pi.gather(-1, sampled.unsqueeze(-1)).squeeze(-1)[rows],
        logp_mu=mu.gather(-1, sampled.unsqueeze(-1)).squeeze(-1)[rows],
        advantages=advantages[rows],
        response_mask=mask[rows],
        support=Support(ids[rows], mu.gather(-1, ids)[rows], pi.gather(-1, ids)[rows], valid[rows]),
        sum_pi_squared=pi.exp().square().sum(-1)[rows],
        entropy=-(pi.exp() * pi).sum(-1)[rows],
        vocab_size=12,
    )
    return out, torch.where(out.ratio() > 1.5, 0.0, out.ratio() * out.advantages)


@pytest.mark.parametrize("parts", [2, 4, 8])
def test_any_split_gives_the_same_numbers(parts: int) -> None:
    """field cases 46 and 48: 1x8, 2x4, 4x2 and 8x1 rows, as accumulation and as a merge over ranks."""
    whole = TokenMetrics()
    whole.observe(*signals())
    split, merged = TokenMetrics(), TokenMetrics()
    size = 8 // parts
    for i in range(parts):
        observed = signals(slice(i * size, (i + 1) * size))
        split.observe(*observed)
        rank = TokenMetrics()
        rank.observe(*observed)
        merged.merge(rank)
    expected = whole.summary()
    assert expected["mask/fraction"] > 0 and expected["direction/disagreement_tokens"] > 0
    assert split.summary() == pytest.approx(expected) and merged.summary() == pytest.approx(expected)


def test_by_hand() -> None:
    """Four tokens, one under the mask and one without advantage: A = (1, -1, 0, 9), g = (0, 0.5, 0, 9)."""
    metrics = TokenMetrics()
    advantages = torch.tensor([[1.0, -1.0, 0.0, 9.0]])
    s = Signals(
        logp_pi=torch.tensor([[0.4, 0.1, 0.5, 1.0]]).log(),
        logp_mu=torch.tensor([[0.2, 0.2, 0.5, 0.1]]).log(),
        advantages=advantages,
        response_mask=torch.tensor([[True, True, True, False]]),
    )
    metrics.observe(s, torch.tensor([[0.0, 0.5, 0.0, 9.0]]))
    out = metrics.summary()
    assert out["tokens/response"] == 3 and out["tokens/active"] == 2
    assert out["mask/fraction"] == 0.5 and out["mask/fraction_positive"] == 1 and out["mask/fraction_negative"] == 0
    assert out["weights/negative_share"] == 0.5  # g and A of the second token have opposite signs
    assert out["ratio/max"] == pytest.approx(2.0) and out["ratio/min"] == pytest.approx(0.5)
    assert out["gap/sampled_mean"] == pytest.approx(2 * math.log(2) / 3)
    assert "kl/topk_mean" not in out and "entropy/mean" not in out


def test_quantiles_are_right_to_the_width_of_a_run() -> None:
    metrics = TokenMetrics()
    observed, _ = signals()
    metrics.observe(observed, observed.advantages)
    from methods.masks import topk_divergence
    from methods.measures import FORWARD_KL

    values = topk_divergence(observed, FORWARD_KL)[observed.response_mask].sort().values
    for q, name in ((0.5, "q50"), (0.9, "q90"), (0.99, "q99")):
        exact = float(values[math.ceil(q * len(values)) - 1])
        assert metrics.summary()[f"divergence/{name}"] == pytest.approx(exact, rel=10 ** (0.5 / 32) - 1 + 1e-6)
    assert metrics.summary()["divergence/max"] == pytest.approx(float(values.max()))


def test_nothing_observed_gives_nothing() -> None:
    assert TokenMetrics().summary() == {}
    empty = TokenMetrics()
    s, g = signals()
    empty.observe(Signals(s.logp_pi, s.logp_mu, s.advantages, torch.zeros_like(s.response_mask)), g)
    assert empty.summary() == {}


def test_an_impossible_token_is_far_away_and_finite() -> None:
    """pi = 0 at the sampled token and at a candidate: 104 nats, where exp is 0 in float32; both impossible: no gap."""
    s, g = signals()
    logp_pi, logp_mu = s.logp_pi.clone(), s.logp_mu.clone()
    place, other = (tuple(int(i) for i in s.response_mask.nonzero()[n]) for n in (0, 1))
    logp_pi[place], logp_pi[other], logp_mu[other] = -math.inf, -math.inf, -math.inf
    assert s.support is not None
    support = replace(s.support, logp_pi=s.support.logp_pi.clone())
    support.logp_pi[(*place, 0)] = -math.inf
    metrics, without = TokenMetrics(), TokenMetrics()
    metrics.observe(replace(s, logp_pi=logp_pi, logp_mu=logp_mu, support=support), g)
    out = metrics.summary()
    assert all(map(math.isfinite, out.values()))
    assert out["gap/sampled_max"] == out["gap/topk_max"] == 104.0
    kept = s.response_mask.clone()
    kept[place] = kept[other] = False
    without.observe(replace(s, response_mask=kept), g)
    rest = without.summary()
    total = rest["gap/sampled_mean"] * rest["tokens/response"] + 104.0
    assert out["gap/sampled_mean"] * out["tokens/response"] == pytest.approx(total)
