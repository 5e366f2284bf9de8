"""Claim: the sampled token either joins the top K or takes the place of candidate K, by one option of the masks.

Re-selection happens on what the trainer carries, K candidates and the sampled token; how it gets there is not covered.
The coefficients under `replaced` against plain Python: test_definitions.py.
"""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from methods import registry
from methods.directions import predictive_direction, sampled_slot
from methods.masks import topk_divergence
from methods.measures import FORWARD_KL, TV
from methods.signals import Signals, Support, sanitise
from methods.support import FILLER_ID, masses, with_sampled, with_support_rule
from tests.methods.helpers import SHIPPED, Line, batch_properties, random_rows, tensor

MU = [0.40, 0.25, 0.15, 0.10, 0.06, 0.04]
PI = [0.30, 0.32, 0.10, 0.13, 0.05, 0.10]


def row(candidates: list[int], sampled: int) -> Signals:
    ids, valid = with_sampled(torch.tensor([[candidates]], dtype=torch.int64), torch.tensor([[sampled]]))
    mu, pi = (tensor(p).log()[ids.clamp(min=0)] for p in (MU, PI))
    one = tensor([[1.0]])
    return sanitise(Signals(pi[..., -1], mu[..., -1], one, one, support=Support(ids, mu, pi, valid), vocab_size=6))


def retained(signals: Signals) -> list[int]:
    support = signals.support
    return sorted(support.ids[support.valid].tolist())


def test_by_hand() -> None:
    """K = 2 and the sampled id 5: {0, 1, 5} with tails 0.31 and 0.28, or {0, 5} with 0.56 and 0.60 (field case 30)."""
    added, replaced = (with_support_rule(row([0, 1], 5), rule) for rule in ("added", "replaced"))
    assert retained(added) == [0, 1, 5] and retained(replaced) == [0, 5]
    assert topk_divergence(added, TV).item() == pytest.approx(0.13)
    assert topk_divergence(replaced, TV).item() == pytest.approx(0.10)
    classes = masses(replaced.support, 6)
    assert (classes.mu_tail.item(), classes.pi_tail.item(), classes.unseen.item()) == pytest.approx((0.56, 0.60, 4))
    # (pi_k - mu_k) + 0.3 (0.1) + 0.1 (-0.06) + 0.6 (-0.04).
    assert predictive_direction(replaced, FORWARD_KL, "aggregated").item() == pytest.approx(0.06)


def test_a_sampled_candidate_replaces_nobody() -> None:
    assert retained(with_support_rule(row([0, 1], 1), "replaced")) == [0, 1]
    assert retained(with_support_rule(row([0], 0), "replaced")) == [0]


def test_one_candidate_and_none() -> None:
    """K = 1 leaves the sampled token alone; where no candidate is valid there is nothing to leave out."""
    assert retained(with_support_rule(row([0], 5), "replaced")) == [5]
    assert retained(with_support_rule(row([FILLER_ID], 5), "replaced")) == [5]
    assert retained(with_support_rule(row([], 5), "replaced")) == [5]


def test_of_equal_candidates_the_last_one_goes() -> None:
    ids = torch.tensor([[[3, 1, 2, 0]]])
    logp = tensor([[[-1.0, -2.0, -2.0, -5.0]]])
    support = Support(ids, logp, logp, torch.ones_like(ids, dtype=torch.bool))
    one = tensor([[-5.0]])
    signals = with_support_rule(Signals(one, one, one, torch.ones(1, 1), support=support), "replaced")
    assert signals.support.valid.tolist() == [[[True, True, False, True]]]


@batch_properties
@given(seed=st.integers(0, 3), order=st.permutations(range(4)), filler=st.integers(0, 4))
def test_it_is_a_rule_about_sets(seed: int, order: list[int], filler: int) -> None:
    """Order and fillers change nothing; at most K ids stay, the sampled one always, and only candidate K ever goes."""
    signals = sanitise(random_rows(seed).signals())
    replaced, support = with_support_rule(signals, "replaced"), signals.support
    slots = [*order[:filler], 4, *order[filler:], 5]
    columns = [
        torch.cat([column[..., :4], torch.full_like(column[..., :1], value), column[..., 4:]], -1)[..., slots]
        for column, value in (
            (support.ids, FILLER_ID),
            (support.logp_mu, 0.0),
            (support.logp_pi, 0.0),
            (support.valid, False),
        )
    ]
    shuffled = with_support_rule(replace(signals, support=Support(*columns)), "replaced")
    for b in range(4):
        for t in range(8):
            before, after, again = (
                set(s.support.ids[b, t][s.support.valid[b, t]].tolist()) for s in (signals, replaced, shuffled)
            )
            assert after == again and len(after) == 4 and int(support.ids[b, t, -1]) in after
            assert before - after <= {int(support.ids[b, t, 3])}
    torch.testing.assert_close(topk_divergence(shuffled, TV), topk_divergence(replaced, TV))
    slot = sampled_slot(replaced.support).unsqueeze(-1)
    assert torch.equal(replaced.support.ids.gather(-1, slot), support.ids[..., -1:])


def test_every_method_with_a_support_offers_both_rules() -> None:
    """Each has the option, its default is the papers' rule, and the other one matters."""
    signals = random_rows(0, batch=16, length=16, top_k=2).signals()
    offered = [name for name in SHIPPED if "support" in {f.name for f in fields(registry.get(name).config_type)}]
    assert {"dppo_topk_kl", "dppo_topk_tv", "predictive", "predictive_random"} <= set(offered)
    for name in offered:
        added = Line(name, {"support": "added"}, None).coefficient(signals)
        assert torch.equal(added, Line(name, {}, None).coefficient(signals)), name
        assert not torch.equal(added, Line(name, {"support": "replaced"}, None).coefficient(signals)), name


def test_a_missing_support_stays_missing_and_an_unknown_rule_is_refused() -> None:
    bare = sanitise(random_rows(0).signals(support=None))
    assert with_support_rule(bare, "replaced") is bare
    with pytest.raises(ValueError, match="support rule = 'both': allowed are added, replaced"):
        with_support_rule(bare, "both")  # type: ignore[arg-type]
