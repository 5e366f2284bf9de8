"""Claim: the support is a set of ids: order, repetition and fillers change nothing, and the sampled token is always in.

A filler slot is an id below zero or a rollout log-prob of -inf on a candidate. What a filler holds beside that mark is
garbage and must not be read. Which candidates an engine records is not our choice and not covered.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from methods.directions import TAIL_RULES, predictive_direction, sampled_slot
from methods.masks import topk_divergence
from methods.measures import MEASURES
from methods.signals import Signals, Support, sanitise
from methods.support import FILLER_ID, Masses, distinct, masses, with_sampled
from tests.methods.helpers import batch_properties, lines, random_rows, tensor

INF = math.inf


def everything(signals: Signals) -> dict[str, Tensor]:
    """All that is computed from a support: proximities, directions and every method's g."""
    clean = sanitise(signals)
    out = {line.label: line.coefficient(signals) for line in lines()}
    for measure in MEASURES.values():
        out[f"divergence {measure.name}"] = topk_divergence(clean, measure)
        for rule in TAIL_RULES:
            out[f"direction {measure.name} {rule}"] = predictive_direction(clean, measure, rule)
    out["unseen"] = masses(clean.support, clean.vocab_size).unseen
    return out


def assert_same(got: dict[str, Tensor], want: dict[str, Tensor]) -> None:
    for name, value in want.items():
        torch.testing.assert_close(got[name], value, rtol=1e-11, atol=1e-13, msg=lambda m, name=name: f"{name}: {m}")


def rebuilt(signals: Signals, ids: Tensor, logp_mu: Tensor, logp_pi: Tensor) -> Signals:
    """Other candidates for the same positions, with_sampled with the same sampled token as an engine's row would be."""
    sampled = signals.support.ids[..., -1]
    joined, valid = with_sampled(ids, sampled, logp_mu)
    support = Support(
        ids=joined,
        logp_mu=torch.cat([logp_mu, signals.logp_mu.unsqueeze(-1)], -1),
        logp_pi=torch.cat([logp_pi, signals.logp_pi.unsqueeze(-1)], -1),
        valid=valid,
    )
    return replace(signals, support=support)


def candidates(signals: Signals) -> tuple[Tensor, Tensor, Tensor]:
    support = signals.support
    return support.ids[..., :-1], support.logp_mu[..., :-1], support.logp_pi[..., :-1]


def test_building_the_same_row_again_changes_nothing() -> None:
    signals = random_rows(0).signals()
    assert_same(everything(rebuilt(signals, *candidates(signals))), everything(signals))


@batch_properties
@given(seed=st.integers(0, 3), order=st.permutations(range(4)))
def test_order_of_candidates(seed: int, order: list[int]) -> None:
    signals = random_rows(seed).signals()
    shuffled = [column[..., order] for column in candidates(signals)]
    assert_same(everything(rebuilt(signals, *shuffled)), everything(signals))


@batch_properties
@given(seed=st.integers(0, 3), repeats=st.lists(st.integers(0, 3), min_size=1, max_size=4))
def test_repeated_ids(seed: int, repeats: list[int]) -> None:
    signals = random_rows(seed).signals()
    doubled = [torch.cat([column, column[..., repeats]], -1) for column in candidates(signals)]
    assert_same(everything(rebuilt(signals, *doubled)), everything(signals))


@batch_properties
@given(
    seed=st.integers(0, 3),
    place=st.integers(0, 4),
    filler=st.sampled_from(["negative id", "-inf at an unseen id", "-inf at a candidate", "-inf at the sampled id"]),
    garbage=st.sampled_from([-0.5, -INF, INF, math.nan, 3.0]),
)
def test_filler_slots(seed: int, place: int, filler: str, garbage: float) -> None:
    """A filler before, among or after the candidates, its id possibly one that another slot really holds."""
    signals = random_rows(seed).signals()
    ids, logp_mu, logp_pi = candidates(signals)
    unseen = 11 - torch.zeros_like(ids[..., :1])
    filler_id = {
        "negative id": torch.full_like(unseen, FILLER_ID - place),
        "-inf at an unseen id": unseen,
        "-inf at a candidate": ids[..., 2:3],
        "-inf at the sampled id": signals.support.ids[..., -1:],
    }[filler]
    mark = garbage if filler == "negative id" else -INF
    filled = [
        torch.cat([column[..., :place], slot, column[..., place:]], -1)
        for column, slot in (
            (ids, filler_id),
            (logp_mu, torch.full_like(logp_mu[..., :1], mark)),
            (logp_pi, torch.full_like(logp_pi[..., :1], garbage)),
        )
    ]
    assert_same(everything(rebuilt(signals, *filled)), everything(signals))


def test_a_row_of_fillers_leaves_the_sampled_token() -> None:
    """No candidates at all: S is the sampled token, the divergence the two-outcome one."""
    signals = random_rows(0).signals()
    ids, logp_mu, logp_pi = candidates(signals)
    empty = sanitise(rebuilt(signals, torch.full_like(ids, FILLER_ID), logp_mu, logp_pi))
    pair = [torch.stack([p.exp(), 1 - p.exp()], -1) for p in (signals.logp_mu, signals.logp_pi)]
    for measure in MEASURES.values():
        torch.testing.assert_close(topk_divergence(empty, measure), measure.value(*pair), rtol=1e-9, atol=1e-12)


def test_united_by_hand() -> None:
    ids = torch.tensor([[5, 2, 9], [5, 2, 9], [5, 5, -1], [-1, -7, -1], [4, 2, 9]])
    joined, valid = with_sampled(ids, torch.tensor([7, 2, 7, 7, 4]))
    assert joined.tolist() == [[5, 2, 9, 7], [5, 2, 9, 2], [5, 5, -1, 7], [-1, -7, -1, 7], [4, 2, 9, 4]]
    assert valid.int().tolist() == [[1, 1, 1, 1], [1, 1, 1, 0], [1, 0, 0, 1], [0, 0, 0, 1], [1, 1, 1, 0]]


def test_a_filler_marked_by_its_log_prob_holds_no_id() -> None:
    """Id 7 marked as a filler: the sampled 7 keeps its own slot, and a later real 7 counts."""
    joined, valid = with_sampled(torch.tensor([7, 3]), torch.tensor(7), tensor([-INF, -1.0]))
    assert joined.tolist() == [FILLER_ID, 3, 7] and valid.tolist() == [False, True, True]
    joined, valid = with_sampled(torch.tensor([3, 3]), torch.tensor(7), tensor([-INF, -1.0]))
    assert joined.tolist() == [FILLER_ID, 3, 7] and valid.tolist() == [False, True, True]


def test_distinct_keeps_first_occurrences() -> None:
    assert distinct(torch.tensor([3, 1, 3, -1, -1, 1, 0])).tolist() == [True, True, False, False, False, False, True]


def test_the_slot_of_the_sampled_token_is_a_valid_one() -> None:
    """The invalid slot 0 holds the sampled id, too, and comes first."""
    ids = torch.tensor([[4, 2, 4]])
    log = tensor([[0.1, 0.2, 0.3]]).log()
    assert sampled_slot(Support(ids, log, log, torch.tensor([[False, True, True]]))).item() == 2
    assert sampled_slot(Support(ids, log, log, torch.tensor([[True, True, False]]))).item() == 0


def of(mu: list[float], pi: list[float], valid: list[bool] | None = None, vocab: int | None = None) -> Masses:
    ids = torch.arange(len(mu))
    flags = torch.tensor(valid or [True] * len(mu))
    return masses(Support(ids, tensor(mu).log(), tensor(pi).log(), flags), vocab)


def test_tails_are_clamped_at_zero() -> None:
    """Retained mass 1.008 under mu and 0.95 under pi: tails 0 and 0.05."""
    classes = of([0.604, 0.404], [0.55, 0.40])
    assert classes.mu_tail.item() == 0
    assert math.isclose(classes.pi_tail.item(), 0.05, abs_tol=1e-12)
    assert of([0.6, 0.3], [0.604, 0.404]).pi_tail.item() == 0


def test_masses_skip_invalid_slots_and_count_unseen_ids() -> None:
    classes = of([0.5, 0.2, 0.1], [0.3, 0.3, 0.2], [True, False, True], vocab=10)
    torch.testing.assert_close(classes.mu, tensor([0.5, 0.0, 0.1]))
    torch.testing.assert_close(classes.pi, tensor([0.3, 0.0, 0.2]))
    torch.testing.assert_close(classes.mu_tail, tensor(0.4))
    torch.testing.assert_close(classes.pi_tail, tensor(0.5))
    assert classes.unseen.item() == 8
    assert of([0.5, 0.5], [0.5, 0.5], vocab=2).unseen.item() == 1
    assert of([0.5], [0.5]).unseen is None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_masses_are_summed_in_float32_or_better(dtype: torch.dtype) -> None:
    """Sixteen equal masses: in bfloat16 the running sum itself would be off by per cents."""
    logp = torch.full((16,), math.log(0.06), dtype=dtype)
    classes = masses(Support(torch.arange(16), logp, logp, torch.ones(16, dtype=torch.bool)))
    want = 1 - 16 * logp.double().exp()[0].item()
    assert classes.mu_tail.dtype == torch.promote_types(dtype, torch.float32)
    assert math.isclose(classes.mu_tail.item(), want, abs_tol=1e-6)
