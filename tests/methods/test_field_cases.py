"""Claim (definition): the field's cases on losses come out right through the catalogue and the adapter.

Cases 3 and 4 (padding, empty batches) and 26 (rows that leak) are properties of every method: see
test_catalogue_properties.py; 24 is in test_estimators.py, 5 in test_advantages.py, 28 in test_temperature.py.
"""

from __future__ import annotations

import math

import pytest
import torch

from methods.clipping import ClipConfig
from reference_math.surrogates import clipped_surrogate
from tests.adapter import call
from tests.methods.batches import coefficient, row
from tests.methods.helpers import tensor

log, exp = math.log, math.exp


def test_gspo_needs_the_geometric_mean_and_tis_the_product() -> None:
    """Field case 25: both are of log-ratios 0.1 and 0.3, and are not the same."""
    logs = {"pi_logps": [-1.0, -2.0], "old_logps": [-1.1, -2.3], "mask": [1, 1]}
    assert call("gspo_ratio", **logs) == pytest.approx(exp(0.2))
    tokens = row((0.1, 0.1, 1, 0.1 * exp(0.1)), (0.1, 0.1, 1, 0.1 * exp(0.3)))
    wide = {"level": "sequence", "upper": 10.0, "eps_low": 1.0}
    want = [exp(0.4) * exp(-0.1), exp(0.4) * exp(-0.3)]
    torch.testing.assert_close(coefficient("tis", tokens, wide)[0], tensor(want))


def test_clip_higher_is_not_plain_clip() -> None:
    """Field case 17: -1.2 and -1.28 at r = 1.5; equal results would prove that the clip is thrown away."""
    one = tensor([1.0])
    values = [-clipped_surrogate(one, 1.5 * one, ClipConfig(eps_high=high)).item() for high in (0.2, 0.28)]
    assert values == pytest.approx([-1.2, -1.28])


@pytest.mark.parametrize("method", ["ppo_clip", "spo", "drpo", "sapo", "cispo", "gspo", "dppo_binary_tv"])
def test_on_policy_every_method_is_plain_policy_gradient(method: str) -> None:
    """Field case 19: at r = 1 the loss's slope is -A."""
    options = {"delta_low": 0.2, "delta_high": 0.2} if method == "dppo_binary_tv" else {}
    assert call("policy_coef", method=method, adv=0.7, pi_logp=-1.0, mu_logp=-1.0, **options) == pytest.approx(-0.7)


def test_what_counts_as_clipped_is_what_lost_its_gradient() -> None:
    """Field case 22: A = (+1, -1), r = (0.5, 2): outside the band and on the unclipped branch; nothing is dropped."""
    loss, *slopes = call(
        "ppo_row",
        pi_logps=[log(0.5) - 1, log(2.0) - 1],
        old_logps=[-1.0, -1.0],
        advs=[1.0, -1.0],
        mask=[1, 1],
        eps_low=0.2,
        eps_high=0.2,
        clip_c=3.0,
    )
    assert slopes == pytest.approx([-0.25, 1.0]) and loss == pytest.approx(0.75)


def test_the_ratio_cap_is_its_own_option() -> None:
    """Field case 15: r = 50 inside DPPO's region: -20 with cap 20, -50 with none; -3 is the dual clip's constant."""
    token = {"method": "dppo_binary_tv", "adv": 1.0, "pi_logp": log(0.05), "mu_logp": log(0.001)}
    delta = {"delta_low": 0.2, "delta_high": 0.2}
    assert call("policy_coef", **token, **delta, ratio_cap=20.0) == pytest.approx(-20)
    assert call("policy_coef", **token, **delta) == pytest.approx(-50)


def test_a_stale_token_by_hand() -> None:
    """Field case 1: a log-ratio of 100, PPO with c = 3: values -1.2, 3 and 0, slopes 0."""
    for advantage, value in ((1.0, -1.2), (-1.0, 3.0), (0.0, 0.0)):
        clip = {"eps_low": 0.2, "eps_high": 0.2, "clip_c": 3.0}
        assert call("ppo_loss", adv=advantage, pi_logp=-1.0, old_logp=-101.0, **clip) == pytest.approx(value)
        assert call("policy_coef", method="ppo", adv=advantage, pi_logp=-1.0, mu_logp=-101.0, **clip) == 0


@pytest.mark.parametrize("pi_logp", [log(0.25), -math.inf])
def test_a_dropped_token_adds_no_loss(pi_logp: float) -> None:
    """A < 0 and mu - pi > delta: 0, not 0 times -inf; a kept token adds -A min(r, C) log pi."""
    delta = {"delta_low": 0.2, "delta_high": 0.2, "ratio_cap": 20.0}
    assert call("dppo_dropped_loss", adv=-1.0, pi_logp=pi_logp, mu_logp=log(0.5), **delta) == 0
    kept = call("dppo_dropped_loss", adv=-1.0, pi_logp=log(0.4), mu_logp=log(0.5), **delta)
    assert kept == pytest.approx(0.8 * log(0.4))
