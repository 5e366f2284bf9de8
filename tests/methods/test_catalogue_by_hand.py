"""Claim (definition): each method gives the numbers that its paper's formula gives by hand, and the field's cases.

That the formulas hold everywhere is the claim of test_catalogue_definitions.py.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from methods.catalogue.cppo import position_weights
from methods.measures import binary_tv
from methods.penalties import k3
from methods.signals import Scope, Signals, Support
from methods.support import with_sampled
from tests.methods.batches import coefficient, row
from tests.methods.helpers import tensor

log, exp = math.log, math.exp


def moved(*log_ratios: float, advantage: float = 1.0) -> Signals:
    """One response whose tokens have these log-ratios."""
    return row(*((0.1 * exp(x), 0.1, advantage) for x in log_ratios))


# Eleven tokens with |log r| 0, 0.01, ..., 0.09 and 0.2, all with A > 0: the 90th percentile is 0.09, the excess of
# the last is (0.2 - 0.09)/.09, so its upper end is 1 + 0.28/(1 + 1.2222^2) = 1.1123 < e^0.2 = 1.2214 < 1.28.
STALE = moved(*(i / 100 for i in range(10)), 0.2)

HAND: list[tuple[str, dict[str, Any], Signals, list[float]]] = [
    # r = 1.5 above the band, 1.1 inside, 0.5 below it for both signs, 1.5 for A < 0, and no advantage
    *(
        (
            name,
            {},
            row((0.3, 0.2, 1), (0.22, 0.2, 1), (0.1, 0.2, 1), (0.1, 0.2, -1), (0.3, 0.2, -1), (0.3, 0.2, 0)),
            [0, 1.1, 0.5, 0, -1.5, 0],
        )
        for name in ("ppo_clip", "grpo")
    ),
    ("ppo_clip", {"dual_clip": 3.0}, row((0.8, 0.2, -1), (0.5, 0.2, -1)), [0, -2.5]),
    ("ppo_clip_higher", {}, row((0.25, 0.2, 1), (0.27, 0.2, 1), (0.9, 0.1, -1)), [1.25, 0, -5]),
    ("pg_tis", {}, row((0.6, 0.1, 1), (0.05, 0.1, -2)), [5, -1]),
    ("pg_tis", {"ratio_cap": 3.0}, row((0.6, 0.1, 1)), [3]),
    # field case 27: the clipped token keeps its gradient, a lower bound raises the weight of a stale one
    ("cispo", {"eps_low": 1.0, "eps_high": 0.28}, row((0.3, 0.2, 1), (0.1, 0.2, -1)), [1.28, -0.5]),
    ("cispo", {"eps_low": 0.2, "eps_high": 0.28}, row((0.3, 0.2, 1), (0.1, 0.2, -1)), [1.28, -0.8]),
    # the band is on pi/pi_old (1.2, 1.5, 1.5, 0.7), the weight is pi/mu
    (
        "minirl",
        {},
        row((0.3, 0.1, 1, 0.25), (0.3, 0.1, 1, 0.2), (0.3, 0.1, -1, 0.2), (0.35, 0.1, -1, 0.5)),
        [3, 0, -3, 0],
    ),
    ("minirl_tis", {}, row((0.4, 0.1, 1, 0.4), (0.2, 0.1, 1, 0.2)), [3, 2]),
    # r A (1 - sign(A) (r - 1) / 0.2): half, one and a half, zero at r = 1.2, pulled back at 1.4
    ("spo", {"eps": 0.2}, row((0.11, 0.1, 1), (0.11, 0.1, -1), (0.12, 0.1, 1), (0.14, 0.1, 1)), [0.55, -1.65, 0, -1.4]),
    # field case 25: the geometric mean e^0.2, one number for both tokens; outside the band for A > 0
    ("gspo", {}, moved(0.1, 0.3, advantage=-1.0), [-exp(0.2)] * 2),
    ("gspo", {}, moved(0.1, 0.3), [0, 0]),
    ("gspo", {"eps_high": 0.25}, moved(0.1, 0.3), [exp(0.2)] * 2),
    # 0.6 is clipped at 0.4 for A > 0: it stays in the mean (0.1 + 0.4)/2 and loses its gradient
    ("geo_mean", {}, moved(0.1, 0.6), [exp(0.25), 0]),
    ("geo_mean", {}, moved(0.1, 0.6, advantage=-1.0), [-exp(0.35)] * 2),
    # 4 s(1) s(-1) 2 with s(1) = 0.7310586
    ("sapo", {"tau_pos": 1.0}, row((0.2, 0.1, 1), (0.1, 0.1, -1)), [8 * 0.7310585786 * 0.2689414214, -1]),
    ("dro", {"beta": 0.5}, row((0.1 * exp(0.2), 0.1, 1), (0.1 * exp(-0.2), 0.1, 0)), [0.9, 0.1]),
    # rho = 0.6, 6 and 0.4; r' = 1.1
    ("icepop", {}, row((0.066, 0.1, 1, 0.06), (0.66, 0.1, 1, 0.6), (0.044, 0.1, 1, 0.04)), [0.66, 0, 0]),
    # rho = 3 and 1.5: truncated at 2 each; their product 4.5; their geometric mean sqrt(4.5)
    ("tis", {}, row((0.33, 0.1, 1, 0.3), (0.165, 0.1, 1, 0.15)), [2.2, 1.65]),
    ("tis", {"level": "sequence", "upper": 4.0}, row((0.33, 0.1, 1, 0.3), (0.165, 0.1, 1, 0.15)), [4.4, 4.4]),
    (
        "tis",
        {"level": "geometric", "upper": 4.0},
        row((0.33, 0.1, 1, 0.3), (0.165, 0.1, 1, 0.15)),
        [1.1 * 4.5**0.5] * 2,
    ),
    ("mis", {}, row((0.33, 0.1, 1, 0.3), (0.165, 0.1, 1, 0.15)), [0, 1.65]),
    ("mis", {"level": "sequence", "upper": 4.0}, row((0.33, 0.1, 1, 0.3), (0.165, 0.1, 1, 0.15)), [0, 0]),
    ("mis", {"level": "sequence", "upper": 5.0}, row((0.33, 0.1, 1, 0.3), (0.165, 0.1, 1, 0.15)), [4.95, 4.95]),
    # k3 of 0.02 and -0.1: 0.000201 and 0.004837, mean 0.002519
    ("trm_mean", {}, moved(0.02, -0.1), [0, 0]),
    ("trm_mean", {"delta": 0.003}, moved(0.02, -0.1), [exp(0.02), exp(-0.1)]),
    ("trm_max", {"statistic": "log_ratio", "delta": 0.15}, moved(0.1, -0.2), [0, 0]),
    ("trm_max", {"statistic": "log_ratio", "delta": 0.25}, moved(0.1, -0.2), [exp(0.1), exp(-0.2)]),
    # w = 1, 0.9, 0.8; D = 0.1, 0.2, 0.3. Z_1 = 0.1 <= 0.15; Z_2 = 0.18 > 0.15 + 0.02 - 0.1 = 0.07; c_3 = 0.15 + 0.038
    # - 0.28 < 0, but the third token moves inward
    (
        "cppo",
        {"measure": "binary_tv", "budget": 0.02},
        row((0.6, 0.5, 1), (0.6, 0.4, 1), (0.2, 0.5, 1)),
        [1.2, 0, 0.4],
    ),
    # the same prefix, half the budget of its D: P90 of (0.1, 0.1, 0.1) is 0.1, clamped to 2 d = 0.08
    (
        "cppo",
        {"measure": "binary_tv", "d": 0.04, "delta": 0.12},
        row((0.6, 0.5, 1), (0.6, 0.5, 1), (0.6, 0.5, 1)),
        [1.2, 1.2, 1.2],
    ),
    ("cppo", {"measure": "binary_tv", "budget": 0.01, "delta": 0.12}, row(*[(0.6, 0.5, 1)] * 3), [1.2, 0, 0]),
    # mu = 0.2: width 0.5; mu = 0.0005: width 10, limited to r <= 10; below, r >= 0.5
    ("ripo", {}, row((0.29, 0.2, 1), (0.31, 0.2, 1), (0.0049, 0.0005, 1), (0.0051, 0.0005, 1)), [1.45, 0, 9.8, 0]),
    ("ripo", {}, row((0.0003, 0.0005, -1), (0.0002, 0.0005, -1), (0.6, 0.9, -1)), [-0.6, 0, 0]),
    ("sat", {}, STALE, [*(exp(i / 100) for i in range(10)), 0]),
    ("ppo_clip_higher", {}, STALE, [*(exp(i / 100) for i in range(10)), exp(0.2)]),
    # lost 0.55, 0.45; for A > 0 nothing is dropped
    ("dppo_negative", {}, row((0.25, 0.8, -1), (0.35, 0.8, -1), (0.2, 0.8, 1)), [0, -0.4375, 0.25]),
    # mu = 0.05 < alpha: r = 2 and 0.5 stay; mu = 0.2: they do not
    ("relaxed_clip", {}, row((0.1, 0.05, 1), (0.025, 0.05, -1), (0.4, 0.2, 1), (0.1, 0.2, -1)), [2, -0.5, 0, 0]),
    ("relaxed_clip", {"side": "high"}, row((0.1, 0.05, 1), (0.025, 0.05, -1)), [2, 0]),
    ("relaxed_clip", {"side": "low"}, row((0.1, 0.05, 1), (0.025, 0.05, -1)), [0, -0.5]),
    ("relaxed_clip", {"dual_clip": 3.0}, row((0.2, 0.05, -1)), [0]),
    # shift 0.1 inside; 0.2 outside: w = 1 - 0.2/.5; -0.2: w = 1.4
    ("mask_drpo", {"delta": 0.5}, row((0.6, 0.5, 1), (0.7, 0.5, 1), (0.3, 0.5, 1)), [1.2, 1.4 * 0.6, 0.6 * 1.4]),
    ("drpo_unweighted", {"delta": 0.5}, row((0.6, 0.5, 0), (0.6, 0.5, 2)), [-0.24, 1.2 * 1.8]),
    # r = 1.2, A = 2, lambda = 0.5 |A| = 1
    ("penalty_k3", {"coefficient": 0.5}, row((0.12, 0.1, 2)), [2.2]),
    ("penalty_k3", {"coefficient": 0.5, "advantage_weighted": False}, row((0.12, 0.1, 2)), [2.3]),
    ("penalty_tv", {"coefficient": 0.5}, row((0.12, 0.1, 2), (0.08, 0.1, 2)), [1.8, 2.0]),
    ("penalty_kl", {"coefficient": 0.5}, row((0.12, 0.1, 2)), [2.4 - 1.2 * (1 + log(1.2))]),
    ("penalty_kl", {"coefficient": 0.5, "direction": "forward"}, row((0.12, 0.1, 2)), [3.4]),
]


@pytest.mark.parametrize(
    ("method", "options", "signals", "want"), HAND, ids=[f"{i}-{case[0]}" for i, case in enumerate(HAND)]
)
def test_by_hand(method: str, options: dict[str, Any], signals: Signals, want: list[float]) -> None:
    torch.testing.assert_close(coefficient(method, signals, options)[0], tensor(want), rtol=1e-9, atol=1e-12)


def just_below(value: float) -> float:
    return value * (1 - 1e-12)


def test_equality_with_a_threshold() -> None:
    """A token or response exactly at its limit is kept; the minimal negative mask drops there, as its paper says.

    Limits are the very numbers that the tokens have, and such numbers made smaller by rounding's size.
    """
    kept = row((0.6, 0.5, 1.0))
    shift = binary_tv(kept.logp_mu, kept.logp_pi).item()
    distance = k3(kept.logp_mu, kept.logp_pi).item()
    log_ratio = (kept.logp_pi - kept.logp_mu).item()
    for method, option, limit, options in (
        ("cppo", "delta", shift, {"measure": "binary_tv"}),
        ("trm_mean", "delta", distance, {}),
        ("trm_max", "delta", log_ratio, {"statistic": "log_ratio"}),
    ):
        assert coefficient(method, kept, {**options, option: limit}).item() == pytest.approx(1.2), method
        assert coefficient(method, kept, {**options, option: just_below(limit)}).item() == 0, method
    inside, outside = (coefficient("mask_drpo", kept, {"radius": r, "delta": 0.5}) for r in (shift, just_below(shift)))
    assert inside.item() == pytest.approx(1.2) and outside.item() == pytest.approx(1.2 * 0.8)
    lost = row((0.3, 0.5, -1.0))
    threshold = binary_tv(lost.logp_mu, lost.logp_pi).item()
    assert coefficient("dppo_negative", lost, {"threshold": threshold}).item() == 0
    assert coefficient("dppo_negative", lost, {"threshold": threshold * (1 + 1e-12)}).item() == pytest.approx(-0.6)
    rare = row((0.5, 0.1, 1.0))
    alpha = rare.logp_mu.exp().item()
    assert coefficient("relaxed_clip", rare, {"alpha": alpha}).item() == 0
    assert coefficient("relaxed_clip", rare, {"alpha": alpha * (1 + 1e-12)}).item() == pytest.approx(5.0)


@pytest.mark.parametrize("method", ["mis", "icepop"])
def test_a_filter_keeps_at_its_bounds(method: str) -> None:
    """rho = 1.5, exactly at the upper and at the lower bound, and just outside either."""
    token = row((0.165, 0.1, 1, 0.15))
    assert token.logp_old is not None
    rho = (token.logp_old - token.logp_mu).exp().item()
    for bounds, want in (
        ({"lower": 0.1, "upper": rho}, 1.65),
        ({"lower": 0.1, "upper": just_below(rho)}, 0.0),
        ({"lower": rho, "upper": 2.0}, 1.65),
        ({"lower": rho * (1 + 1e-12), "upper": 2.0}, 0.0),
    ):
        assert coefficient(method, token, bounds).item() == pytest.approx(want), bounds


def test_weights_of_cppo_fall_over_the_valid_tokens() -> None:
    """1 at the first, w_min at the last; gaps do not count; a response of one token has weight 1."""
    mask = torch.tensor([[1, 1, 1, 0], [1, 0, 1, 1], [0, 1, 1, 0], [0, 1, 0, 0]]).bool()
    weights = position_weights(mask, 0.8)
    want = [[1.0, 0.9, 0.8], [1.0, 0.9, 0.8], [1.0, 0.8], [1.0]]
    for got, valid, expected in zip(weights, mask, want, strict=True):
        torch.testing.assert_close(got[valid], tensor(expected))


def test_ripo_takes_a_log_prob_above_zero_for_a_certain_token() -> None:
    """mu = e^0.04 by rounding upstream: the width is sqrt(0.05) = 0.2236, not sqrt(0.05 / e^0.04) = 0.2192; 0.78 is
    kept."""
    signals = replace(row((0.78 * exp(0.04), 1.0, -1.0)), logp_mu=tensor([[0.04]]))
    assert coefficient("ripo", signals).item() == pytest.approx(-0.78)


def test_sat_depends_on_the_rest_of_the_mini_batch() -> None:
    """Why it refuses less than one: alone, the stale token is its own percentile and is kept."""
    alone = moved(0.2)
    assert coefficient("sat", alone).item() == pytest.approx(exp(0.2))
    with pytest.raises(ValueError, match=r"signals[.]scope = micro-batch.*allowed is mini-batch"):
        coefficient("sat", replace(alone, scope=Scope.MICRO_BATCH))


def test_predictive_drpo_by_hand() -> None:
    """S: mu (0.4, 0.2), pi (0.45, 0.35), 8 unseen ids, sampled id 0: d = +.015 aggregated, -0.02 uniform; |pi - mu| =
    0.05.

    r = 1.125 and delta = 0.15: the weight is 1 - 1/3 or 1 + 1/3, DRPO's by the ratio 1 - 1/3.
    """
    ids, valid = with_sampled(torch.tensor([[[0, 1]]]), torch.tensor([[0]]))
    plain = row((0.45, 0.4, 1))
    at_ids = [tensor([[[a, b, a]]]).log() for a, b in ((0.4, 0.2), (0.45, 0.35))]
    signals = replace(plain, support=Support(ids, *at_ids, valid), vocab_size=10)
    for tail, weight in (("aggregated", 2 / 3), ("uniform", 4 / 3)):
        assert coefficient("predictive_drpo", signals, {"tail": tail}).item() == pytest.approx(1.125 * weight)
    assert coefficient("drpo", signals, {"delta": 0.15}).item() == pytest.approx(1.125 * 2 / 3)


def test_trm_max_by_hand() -> None:
    """Top-K KL of the second token: 0.4 log(0.4/.3) + 0.25 log(0.25/.32) + 0.35 log(0.35/.38) = 0.02457; the first's
    is 0."""
    ids, valid = with_sampled(torch.tensor([[[0, 1], [0, 1]]]), torch.tensor([[0, 1]]))
    mu = tensor([[[0.4, 0.25, 0.4], [0.4, 0.25, 0.25]]]).log()
    pi = tensor([[[0.4, 0.25, 0.4], [0.3, 0.32, 0.32]]]).log()
    signals = replace(row((0.4, 0.4, 1), (0.32, 0.25, 1)), support=Support(ids, mu, pi, valid), vocab_size=6)
    for delta, want in ((0.0246, [1.0, 1.28]), (0.0245, [0.0, 0.0])):
        torch.testing.assert_close(coefficient("trm_max", signals, {"delta": delta})[0], tensor(want))
