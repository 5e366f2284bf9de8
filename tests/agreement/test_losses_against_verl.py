"""agreement: gradients with respect to log pi equal verl 0.9.1's own losses where the definitions coincide.

Where they don't, a test shows by how much; the method's docstring says why. Not covered: verl's top-K or sequence
masks, of which it has none, and losses that the catalogue lacks (gpg, clip_cov, kl_cov).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import verl  # noqa: F401
from torch import Tensor
from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY, agg_loss, get_policy_loss_fn
from verl.workers.config import PolicyLossConfig

from methods.aggregation import MODES, aggregate
from methods.backend import plugin  # noqa: F401
from methods.backend.loss import TetherPolicyLossConfig, loss_name
from tests.backend.verl_config import actor_config

SEQUENCE_MEAN = "seq-mean-token-mean"
BAND = {"clip_ratio_low": 0.2, "clip_ratio_high": 0.28}


@dataclass(frozen=True)
class Pair:
    """verl's loss with keys of its actor config, and our method with options that mean the same."""

    theirs: str
    ours: str
    keys: dict[str, Any]
    options: dict[str, Any]
    modes: tuple[str, ...] = MODES
    policy_keys: dict[str, Any] = field(default_factory=dict)


PAIRS = [
    Pair("vanilla", "ppo_clip", {**BAND, "clip_ratio_c": 3.0}, {"eps_high": 0.28, "dual_clip": 3.0, "ratio_cap": None}),
    Pair("vanilla", "grpo", {**BAND, "clip_ratio_c": 1.5}, {"eps_high": 0.28, "dual_clip": 1.5, "ratio_cap": None}),
    Pair("vanilla", "ppo_clip_higher", {**BAND, "clip_ratio_c": 3.0}, {"dual_clip": 3.0, "ratio_cap": None}),
    Pair(
        "dppo_tv",
        "dppo_binary_tv",
        {"clip_ratio_low": 0.15, "clip_ratio_high": 0.05, "clip_ratio_c": 20.0},
        {"delta": [0.15, 0.05], "ratio_cap": 20.0},
    ),
    Pair(
        "dppo_kl",
        "dppo_binary_kl",
        {"clip_ratio_low": 0.05, "clip_ratio_high": 0.02, "clip_ratio_c": 2.0},
        {"delta": [0.05, 0.02], "ratio_cap": 2.0},
    ),
    Pair("cispo", "cispo", BAND, {"eps_low": 0.2, "eps_high": 0.28}),
    Pair("gspo", "gspo", {"clip_ratio_low": 0.1, "clip_ratio_high": 0.2}, {"eps_low": 0.1, "eps_high": 0.2}),
    Pair("sapo", "sapo", {"tau_pos": 1.0, "tau_neg": 1.05}, {}, (SEQUENCE_MEAN,)),
    Pair("geo_mean", "geo_mean", {"clip_ratio_low": 0.4, "clip_ratio_high": 0.3}, {"eps_high": 0.3}, (SEQUENCE_MEAN,)),
    Pair("dro", "dro", {}, {"beta": 0.3}, policy_keys={"dro_beta": 0.3}),
]


@dataclass(frozen=True)
class Batch:
    """float64 log-probs and advantages, [B, T]; the advantage of a response is one number, as in GRPO."""

    logp: Tensor
    old: Tensor
    advantages: Tensor
    mask: Tensor

    @classmethod
    def drawn(cls, seed: int, rows: int = 12, width: int = 9) -> Batch:
        """Ratios from 0.02 to 50; every response has a token."""
        random = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=random, dtype=torch.float64)

        old = -normal(rows, width).abs() * 2 - 0.01
        logp = (old + normal(rows, width) * torch.rand(rows, 1, generator=random, dtype=torch.float64)).clamp(max=-1e-3)
        lengths = torch.randint(1, width + 1, (rows, 1), generator=random)
        return cls(logp, old, normal(rows, 1).expand(-1, width), torch.arange(width) < lengths)

    @classmethod
    def tokens(cls, *triples: tuple[float, float, float]) -> Batch:
        """One response per (log pi, log mu, A)."""
        columns = (torch.tensor(column, dtype=torch.float64).unsqueeze(1) for column in zip(*triples, strict=True))
        logp, old, advantages = columns
        return cls(logp, old, advantages, torch.ones(len(triples), 1, dtype=torch.bool))

    def part(self, rows: slice) -> Batch:
        return Batch(self.logp[rows], self.old[rows], self.advantages[rows], self.mask[rows])


def gradient(batch: Batch, config: Any, counts: Batch | None = None) -> Tensor:
    """d loss / d log pi of the registered loss; counts: the mini-batch that the batch is a part of."""
    whole = counts or batch
    tokens, sequences = int(whole.mask.sum()), int(whole.mask.any(-1).sum())
    config.global_batch_info.update(dp_size=1, batch_num_tokens=tokens, global_batch_size=sequences)
    # Without it verl's losses divide by this width, and ours refuse.
    config.global_batch_info["loss_scale_factor"] = batch.mask.shape[-1]
    logp = batch.logp.clone().requires_grad_()
    loss, _ = get_policy_loss_fn(config.policy_loss.loss_mode)(
        batch.old, logp, batch.advantages, batch.mask, config.loss_agg_mode, config
    )
    return torch.autograd.grad(loss, logp)[0]


def theirs(name: str, batch: Batch, mode: str = "token-mean", counts: Batch | None = None, **keys: Any) -> Tensor:
    assert not hasattr(POLICY_LOSS_REGISTRY[name], "tether_method")
    policy = {key: keys.pop(key) for key in ("dro_beta",) if key in keys}
    return gradient(batch, actor_config(PolicyLossConfig(loss_mode=name, **policy), mode, **keys), counts)


def ours(name: str, batch: Batch, mode: str = "token-mean", **options: Any) -> Tensor:
    return gradient(batch, actor_config(TetherPolicyLossConfig(loss_mode=loss_name(name), options=options), mode))


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair.theirs}-{pair.ours}")
def test_gradients_are_verls(pair: Pair) -> None:
    """In every aggregation mode that verl's loss honours, and with tokens on both sides of every edge."""
    for mode in pair.modes:
        for seed in range(5):
            batch = Batch.drawn(seed)
            expected = theirs(pair.theirs, batch, mode, **pair.keys, **pair.policy_keys)
            got = ours(pair.ours, batch, mode, **pair.options)
            assert torch.allclose(got, expected, rtol=1e-6, atol=1e-12), (mode, seed)
            assert (expected[batch.mask] != 0).any() and (expected[~batch.mask] == 0).all()


@pytest.mark.parametrize("mode", MODES)
def test_aggregation_is_verls_on_clean_input(mode: str) -> None:
    """With and without global counts; and with NaN under the mask, where verl's sequence modes are NaN."""
    random = torch.Generator().manual_seed(0)
    losses, mask = torch.randn(5, 7, generator=random), torch.rand(5, 7, generator=random) < 0.6
    mask[:, 0] = True
    for counts in ({}, {"dp_size": 2, "batch_num_tokens": 40, "global_batch_size": 9}, {"loss_scale_factor": 11}):
        expected = agg_loss(losses, mask, mode, **counts)
        assert aggregate(losses, mask, mode, **counts).item() == pytest.approx(expected.item(), rel=1e-6)
    dirty = torch.where(mask, losses, math.nan)
    assert aggregate(dirty, mask, mode).item() == pytest.approx(agg_loss(losses, mask, mode).item(), rel=1e-6)
    assert math.isnan(agg_loss(dirty, mask, mode)) == mode.startswith("seq")


LOG = math.log


def test_the_dppo_cap_is_a_key_of_its_own() -> None:
    """field case 15: r = 50 inside the region. verl's default configuration truncates it at 3, meant for dual clip."""
    token = Batch.tokens((LOG(0.05), LOG(0.001), 1.0))
    radius = {"clip_ratio_low": 0.15, "clip_ratio_high": 0.15}
    assert theirs("dppo_tv", token, **radius).item() == pytest.approx(-3.0)
    assert theirs("dppo_kl", token, clip_ratio_low=0.5, clip_ratio_high=0.5).item() == pytest.approx(-3.0)
    for cap, expected in ((20.0, -20.0), (None, -50.0), (5.0, -5.0)):
        assert ours("dppo_binary_tv", token, delta=0.15, ratio_cap=cap).item() == pytest.approx(expected)
        assert ours("dppo_binary_kl", token, delta=0.5, ratio_cap=cap).item() == pytest.approx(expected)
    assert theirs("dppo_tv", token, clip_ratio_c=20.0, **radius).item() == pytest.approx(-20.0)


def test_dual_clip_is_off_unless_asked_for() -> None:
    """A < 0 with r = 4: verl's vanilla drops it at its default c = 3."""
    token = Batch.tokens((LOG(0.4), LOG(0.1), -1.0))
    assert theirs("vanilla", token, **BAND).item() == 0
    assert ours("ppo_clip", token).item() == pytest.approx(4.0)
    assert ours("ppo_clip", token, dual_clip=3.0).item() == 0


def test_cispo_has_no_lower_bound_unless_asked_for() -> None:
    """r = 0.5: verl's default keys raise the weight to 0.8; the paper's setting leaves it."""
    token = Batch.tokens((LOG(0.1), LOG(0.2), -1.0))
    assert theirs("cispo", token).item() == pytest.approx(0.8)
    assert ours("cispo", token).item() == pytest.approx(0.5)


def test_verls_log_ratio_limits_cut_the_gradient() -> None:
    """Beyond +-20 (GSPO: 10) a clamp inside the graph drops the token in verl; ours limits the coefficient's ratio."""
    far = Batch.tokens((-0.5, -25.5, -1.0), (-25.5, -0.5, 1.0))
    assert theirs("vanilla", far, clip_ratio_c=1e9, **BAND).flatten().tolist() == [0, 0]
    expected = [math.exp(20) / 2, -math.exp(-20) / 2]
    assert ours("ppo_clip", far, ratio_cap=None).flatten().tolist() == pytest.approx(expected)
    sequence = Batch.tokens((-0.5, -15.5, -1.0))
    assert theirs("gspo", sequence, SEQUENCE_MEAN).item() == 0
    assert ours("gspo", sequence, SEQUENCE_MEAN).item() == pytest.approx(math.exp(15))
    token = Batch.tokens((-0.5, -25.5, 1.0))
    assert theirs("dro", token, dro_beta=0.1).item() == pytest.approx(-1 + 0.1 * 25)
    assert ours("dro", token, beta=0.1).item() == pytest.approx(-1 + 0.1 * 20)


def test_the_second_logarithm_of_dppo_kl() -> None:
    """mu = 1 - 1e-4, pi = 1 - 1e-12: of 1.74e-3 nats verl's 1e-8 leaves 8.2e-4, so that it keeps the token."""
    token = Batch.tokens((-1e-12, math.log1p(-1e-4), 1.0))
    assert theirs("dppo_kl", token, clip_ratio_low=1.2e-3, clip_ratio_high=1.2e-3).item() != 0
    assert ours("dppo_binary_kl", token, delta=1.2e-3).item() == 0
    assert ours("dppo_binary_kl", token, delta=1.9e-3).item() != 0


def test_sapo_ignores_the_configured_aggregation_in_verl() -> None:
    batch = Batch.drawn(0)
    token_mean = theirs("sapo", batch, "token-mean")
    assert torch.allclose(token_mean, ours("sapo", batch, SEQUENCE_MEAN), atol=1e-12)
    assert not torch.allclose(token_mean, ours("sapo", batch, "token-mean"), rtol=1e-2)


def test_geo_mean_takes_the_mean_of_whatever_it_is_given_in_verl() -> None:
    """An empty response shrinks the others, and two micro-batches give twice the gradient of one; ours do neither."""
    batch = Batch.drawn(1, rows=4)
    empty = Batch(batch.logp, batch.old, batch.advantages, batch.mask & (torch.arange(4) != 0).unsqueeze(1))
    alone = batch.part(slice(1, 4))
    assert torch.allclose(theirs("geo_mean", empty)[1:], 0.75 * theirs("geo_mean", alone), atol=1e-12)
    assert torch.allclose(
        ours("geo_mean", empty, SEQUENCE_MEAN)[1:], ours("geo_mean", alone, SEQUENCE_MEAN), atol=1e-12
    )
    halves = torch.cat([theirs("geo_mean", batch.part(rows), counts=batch) for rows in (slice(0, 2), slice(2, 4))])
    assert torch.allclose(halves, 2 * theirs("geo_mean", batch), atol=1e-12)


def test_a_token_without_advantage_moves_nothing_but_in_dro() -> None:
    """A = 0 counts as masked in verl's DPPO and has no gradient in any loss of either side, DRO's penalty apart."""
    token = Batch.tokens((LOG(0.9), LOG(0.1), 0.0))
    for pair in PAIRS:
        for value in (
            theirs(pair.theirs, token, **pair.keys, **pair.policy_keys),
            ours(pair.ours, token, **pair.options),
        ):
            assert (value.item() != 0) == (pair.theirs == "dro")
