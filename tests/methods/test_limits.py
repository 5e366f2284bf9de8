"""Claim: at the edges of the number range and of a region every value is finite, or the limit it must have.

Log-ratios far out, impossible and certain tokens, ties, exact equality with a radius, products that underflow.
Refused inputs are the claim of test_signals.py.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from methods import registry
from methods.directions import TAIL_RULES, full_direction, predictive_direction, reduced_direction
from methods.masks import capped_ratio, topk_divergence, trust_region_keep
from methods.measures import MEASURES, binary_kl, binary_tv
from methods.signals import LOG_RATIO_LIMIT, Signals, Support, log_ratio, probability, sanitise
from methods.support import Masses, with_sampled
from tests.methods.helpers import Line, lines, random_rows, tensor

INF = math.inf
FAR = (-1.0, -101.0, -1e4, -INF, 0.0)
GRID = list(itertools.product(FAR, FAR, (1.0, -1.0, 0.0)))
DTYPES = (torch.float32, torch.float64)


def far_tokens(dtype: torch.dtype) -> Signals:
    """One row, a token for each (log pi, log mu, A) of the grid, with two further candidates."""
    pi, mu, advantages = (torch.tensor([column], dtype=dtype) for column in zip(*GRID, strict=True))
    sampled = torch.zeros(1, len(GRID), dtype=torch.int64)
    ids, valid = with_sampled(torch.tensor([1, 2]).expand(1, len(GRID), 2), sampled)

    def slots(own: Tensor, others: list[float]) -> Tensor:
        return torch.cat([torch.tensor(others, dtype=dtype).expand(1, len(GRID), 2), own.unsqueeze(-1)], -1)

    def whole(own: Tensor, others: list[float]) -> Tensor:
        return torch.cat(
            [own.unsqueeze(-1), torch.tensor([*others, -INF, -9.0], dtype=dtype).expand(1, len(GRID), 4)], -1
        )

    return Signals(
        logp_pi=pi,
        logp_mu=mu,
        advantages=advantages,
        response_mask=torch.ones_like(sampled, dtype=torch.bool),
        support=Support(ids, slots(mu, [-2.0, -INF]), slots(pi, [-INF, -3.0]), valid),
        sum_pi_squared=torch.full_like(pi, 0.5),
        vocab_size=5,
        logp_old=pi,
        full=(whole(mu, [-2.0, -INF]), whole(pi, [-INF, -3.0])),
        sampled=sampled,
        uniforms=torch.linspace(0, 0.99, len(GRID), dtype=dtype).expand(1, -1),
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("line", lines(), ids=lambda line: line.label)
def test_no_log_ratio_breaks_a_coefficient(line: Line, dtype: torch.dtype) -> None:
    """Finite everywhere, and exactly 0 where A = 0 (in plain float32 code 0 * inf would be NaN)."""
    signals = far_tokens(dtype)
    g = line.coefficient(signals)
    assert torch.isfinite(g).all()
    assert (g[signals.advantages == 0] == 0).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_no_log_prob_breaks_a_measure_or_direction(dtype: torch.dtype) -> None:
    signals = sanitise(far_tokens(dtype))
    for measure in MEASURES.values():
        divergence = topk_divergence(signals, measure)
        assert torch.isfinite(divergence).all() and (divergence >= 0).all()
        for rule in TAIL_RULES:
            assert torch.isfinite(predictive_direction(signals, measure, rule)).all()


def test_the_log_ratio_is_limited_on_both_sides() -> None:
    """Hand values: 100 above and below become 20; two impossible tokens agree."""
    pi, mu = tensor([-1.0, -101.0, -1.0, -INF, -INF, -3.0]), tensor([-101.0, -1.0, -INF, -1.0, -INF, -2.5])
    torch.testing.assert_close(log_ratio(pi, mu), tensor([20.0, -20.0, 20.0, -20.0, 0.0, -0.5]))
    assert LOG_RATIO_LIMIT == 20.0


def test_a_ratio_is_capped_from_above_only() -> None:
    signals = Signals(tensor([[math.log(0.9), -3.0]]), tensor([[-3.0, math.log(0.9)]]), tensor([[1.0, 1.0]]), tensor(1))
    above, below = 0.9 / math.exp(-3), math.exp(-3) / 0.9
    torch.testing.assert_close(capped_ratio(signals, 5.0), tensor([[5.0, below]]))
    torch.testing.assert_close(capped_ratio(signals, None), tensor([[above, below]]))


@pytest.mark.parametrize(
    ("advantage", "method", "options", "want"),
    [
        (1.0, "ppo_clip_higher", {"dual_clip": 3.0}, 0.0),
        (-1.0, "ppo_clip_higher", {"dual_clip": 3.0}, 0.0),
        (-1.0, "ppo_clip_higher", {}, -5.0),
        (1.0, "pg_is", {}, math.exp(20)),
        (1.0, "pg_is", {"ratio_cap": 3}, 3.0),
        (-1.0, "drpo", {}, -math.exp(20) * (1 + (math.exp(-1) - math.exp(-101)) / 12.5)),
    ],
)
def test_a_stale_log_prob_by_hand(advantage: float, method: str, options: dict, want: float) -> None:
    """pi = e^-1 against mu = e^-101."""
    signals = Signals(tensor([[-1.0]]), tensor([[-101.0]]), tensor([[advantage]]), torch.ones(1, 1))
    torch.testing.assert_close(Line(method, options, float).coefficient(signals), tensor([[want]]))


def test_ppo_keeps_at_the_edges_of_its_band() -> None:
    """Ratios exactly at 1 + eps_high, 1 - eps_low and c keep their gradient; c is for A < 0 only."""
    one = torch.ones(1, 1)
    up = Signals(tensor([[-0.75]]), tensor([[-1.0]]), tensor([[1.0]]), one)
    down = Signals(tensor([[-1.25]]), tensor([[-1.0]]), tensor([[-1.0]]), one)
    high, low = up.ratio().item() - 1, 1 - down.ratio().item()
    at = {"eps_high": high, "eps_low": low}
    inside = {"eps_high": high * 0.999, "eps_low": low * 0.999}
    for signals in (up, down):
        kept = signals.ratio() * signals.advantages
        assert torch.equal(Line("ppo_clip_higher", at, float).coefficient(signals), kept)
        assert Line("ppo_clip_higher", inside, float).coefficient(signals) == 0
    on_policy = Signals(tensor([[-1.0]]), tensor([[-1.0]]), tensor([[-1.0]]), one)
    assert Line("ppo_clip_higher", {"dual_clip": 1.0}, float).coefficient(on_policy) == -1
    wide = {"eps_high": 1.0, "dual_clip": 1.0}
    for sign, want in ((0.5, 0.5 * (1 + high)), (-0.5, 0.0)):
        signals = replace(up, advantages=tensor([[sign]]))
        assert Line("ppo_clip_higher", wide, float).coefficient(signals).item() == pytest.approx(want)


@pytest.mark.parametrize("dtype", DTYPES)
def test_equality_with_the_radius_keeps(dtype: torch.dtype) -> None:
    """At delta, and within rounding of it, a token is inside; beyond it is not; high is for A > 0, low for A < 0."""
    low, high = 0.15, 0.3
    for radius, advantage in ((high, 1.0), (low, -1.0)):
        at = torch.tensor(radius, dtype=dtype)
        eps = torch.finfo(dtype).eps
        divergence = torch.stack([at, at + 4 * eps, at + 16 * eps])
        advantages = torch.full((3,), advantage, dtype=dtype)
        outward, inward = advantages, -advantages
        assert trust_region_keep(advantages, divergence, outward, (low, high)).tolist() == [True, True, False]
        assert trust_region_keep(advantages, divergence, inward, (low, high)).all()


def test_ties_keep() -> None:
    """A = 0 and a direction of exactly 0 are no outward moves, however far the policies are apart."""
    far = tensor([9.0, 9.0, INF])
    assert trust_region_keep(tensor([0.0, 1.0, -1.0]), far, tensor([1.0, 0.0, -0.0]), 0.1).all()
    assert not trust_region_keep(tensor([1.0]), tensor([INF]), tensor([1.0]), 0.1).any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_small_numbers_keep_their_sign(dtype: torch.dtype) -> None:
    """A * d underflows to zero; its sign does not."""
    tiny = torch.tensor([torch.finfo(dtype).tiny], dtype=dtype)
    assert (tiny * tiny == 0).all()
    assert not trust_region_keep(tiny, tiny + 1, tiny, 0.1).any()
    assert not trust_region_keep(-tiny, tiny + 1, -tiny, 0.1).any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("measure", MEASURES.values(), ids=list(MEASURES))
def test_impossible_and_certain_tokens(measure, dtype: torch.dtype) -> None:
    """Zeros: identical policies are at 0 with no direction; disjoint ones are farther than any radius in use."""
    certain, other, spread = (torch.tensor(p, dtype=dtype) for p in ([1.0, 0, 0], [0, 1.0, 0], [0.5, 0.5, 0.0]))
    assert measure.value(certain, certain) == 0 and measure.logit_gradient(certain, certain).abs().sum() == 0
    for mu, pi in itertools.product((certain, other, spread), repeat=2):
        value, gradient = measure.value(mu, pi), measure.logit_gradient(mu, pi)
        assert torch.isfinite(value) and torch.isfinite(gradient).all()
        assert value == 0 if mu is pi else value > 0.2
    # A saturated softmax cannot move: no logit step changes it to first order, but for measures whose slope at a mass
    # of zero grows as fast as that mass vanishes.
    if measure.name not in ("forward_kl", "jeffreys", "chi2_neyman"):
        assert measure.logit_gradient(spread, certain).abs().sum() == 0


def test_a_floor_never_hides_a_missing_tail() -> None:
    """The rollout tail is a weight (0 log 0 = 0), the current one sits under the logarithm (field case 35)."""
    kl = MEASURES["forward_kl"].value
    full = kl(tensor([0.6, 0.4, 0.0]), tensor([0.5, 0.3, 0.2]))
    torch.testing.assert_close(full, tensor(0.6 * math.log(1.2) + 0.4 * math.log(4 / 3)))
    assert 5 < kl(tensor([0.5, 0.3, 0.2]), tensor([0.6, 0.4, 0.0])) < INF


@pytest.mark.parametrize("dtype", DTYPES)
def test_binary_measures_at_the_edges(dtype: torch.dtype) -> None:
    def log(*p: float) -> Tensor:
        return torch.tensor(p, dtype=torch.float64).log().to(dtype)

    mu, pi = log(0.0, 1.0, 1.0, 0.0, 1.0, 0.3), log(0.2, 0.5, 1.0, 0.0, 0.0, 0.3)
    torch.testing.assert_close(binary_tv(mu, pi), torch.tensor([0.2, 0.5, 0, 0, 1, 0], dtype=dtype))
    want = torch.tensor([-math.log(0.8), math.log(2), 0, 0, INF, 0], dtype=dtype)
    torch.testing.assert_close(binary_kl(mu, pi), want)
    certain = binary_kl(log(0.5), log(1.0))
    assert 5 < certain < INF
    # Both ends of a rare outcome, where 1 - p by subtraction loses per cents in float32.
    for m, p in ((1e-6, 3e-6), (1 - 1e-6, 1 - 3e-6)):
        torch.testing.assert_close(binary_kl(log(m), log(p)).double(), tensor([9.01389711e-7]), rtol=1e-5, atol=0)


def test_rounding_makes_no_divergence_negative() -> None:
    """Nearly equal policies in float32, where the sum of p log(p/q) alone falls below zero for some rows."""
    rows = random_rows(0, batch=16, drift=1e-5)
    mu, pi = rows.logits_mu.float().softmax(-1), rows.logits_pi.float().softmax(-1)
    assert ((mu * (mu / pi).log()).sum(-1) < 0).any() and ((pi * (pi / mu).log()).sum(-1) < 0).any()
    for measure in MEASURES.values():
        assert (measure.value(mu, pi) >= 0).all()
    assert (binary_kl(mu.log(), pi.log()) >= 0).all()


def test_a_log_prob_above_zero_is_a_certain_token() -> None:
    """+.0078125 against 0.75: shift 0.25, no log of a negative rest (field case 10)."""
    above, mu = tensor([0.0078125]), tensor([0.75]).log()
    assert probability(above).item() == 1
    torch.testing.assert_close(binary_tv(mu, above), tensor([0.25]))
    assert binary_kl(above, mu).item() == pytest.approx(-math.log(0.75))
    assert torch.isfinite(binary_kl(mu, above))


@pytest.mark.parametrize("dtype", DTYPES)
def test_no_boundary_of_hundredths_drops(dtype: torch.dtype) -> None:
    """|pi - mu| and r come out of exp and log; where they equal a radius or an end of the band, the token is kept."""
    kept = torch.ones(1, 1, dtype=torch.bool)
    for mu, pi in itertools.product(range(1, 100), repeat=2):
        if abs(pi - mu) not in (5, 10, 15, 20, 30) and pi * 100 not in (mu * 80, mu * 120, mu * 128):
            continue
        logp_mu, logp_pi = (tensor([[math.log(p / 100)]]).to(dtype) for p in (mu, pi))
        sign = tensor([[1.0 if pi > mu else -1.0]]).to(dtype)
        signals = Signals(logp_pi, logp_mu, sign, kept)
        if abs(pi - mu) in (5, 10, 15, 20, 30):
            options = {"delta": abs(pi - mu) / 100}
            method = registry.get("dppo_binary_tv")
        else:
            options = {"eps_low": 0.2, "eps_high": 0.2 if pi * 100 != mu * 128 else 0.28}
            method = registry.get("ppo_clip")
        assert method.coefficient(signals, method.configure(options)) != 0, (mu, pi, method.name)


@pytest.mark.parametrize("name", ["forward_kl", "reverse_kl", "jeffreys"])
def test_a_rare_impossible_token_is_still_far(name: str) -> None:
    """A mass of 0.0015 against none is outside every region (field case 35), while a rounding's mass is nothing."""
    measure, none, some = MEASURES[name], tensor([1.0, 0.0]), tensor([0.9985, 0.0015])
    pairs = {"forward_kl": [(some, none)], "reverse_kl": [(none, some)], "jeffreys": [(some, none), (none, some)]}
    for mu, pi in pairs[name]:
        assert measure.value(mu, pi) > 100
    assert measure.value(tensor([1.0, 1e-16]), none) < 1e-12


@pytest.mark.parametrize("dtype", DTYPES)
def test_equal_tails_have_no_sign_of_their_own(dtype: torch.dtype) -> None:
    """TV's slope jumps at equality: tails 1 - sum that differ by rounding are equal, or the direction is noise."""
    mu, pi, k = tensor([0.35, 0.07]).to(dtype), tensor([0.32, 0.10]).to(dtype), torch.tensor(0)
    classes = Masses(mu, pi, 1 - mu.sum(), 1 - pi.sum(), None)
    assert reduced_direction(MEASURES["tv"], classes, k, "aggregated").item() == pytest.approx(-0.127968, rel=1e-5)
    third = tensor([0.4, 0.3, 1 - 0.7]).to(dtype)
    got = full_direction(MEASURES["tv"], third, tensor([0.5, 0.2, 0.3]).to(dtype), k)
    exact = full_direction(MEASURES["tv"], tensor([0.4, 0.3, 0.3]).to(dtype), tensor([0.5, 0.2, 0.3]).to(dtype), k)
    torch.testing.assert_close(got, exact)
