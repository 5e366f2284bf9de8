"""Claim: g depends on a token's own distributions and advantage, and on nothing else.

Logit shifts, names of the tokens, padding, what stands under the response mask, other rows and the input's dtype
change nothing beyond the rounding of the inputs. Whether an engine delivers such inputs is not covered.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from methods import registry
from methods.directions import predictive_direction, ratio_direction
from methods.masks import topk_divergence, trust_region_keep
from methods.measures import FORWARD_KL, MEASURES, TV, binary_kl, binary_tv
from methods.registry import Needs
from methods.signals import Signals, sanitise
from tests.methods.helpers import (
    Line,
    batch_properties,
    changed,
    lines,
    pairs_of_logits,
    properties,
    random_rows,
    tensor,
)

LINES = lines()
every_line = pytest.mark.parametrize("line", LINES, ids=lambda line: line.label)


@batch_properties
@given(seed=st.integers(0, 5), shifts=st.tuples(st.floats(-50, 50), st.floats(-50, 50)))
def test_logit_shift(seed: int, shifts: tuple[float, float]) -> None:
    rows = random_rows(seed)
    shifted = replace(rows, logits_mu=rows.logits_mu + shifts[0], logits_pi=rows.logits_pi + shifts[1])
    for line in LINES:
        torch.testing.assert_close(
            line.coefficient(shifted.signals()), line.coefficient(rows.signals()), rtol=1e-9, atol=1e-11
        )


@batch_properties
@given(seed=st.integers(0, 5), order=st.permutations(range(12)))
def test_vocabulary_permutation(seed: int, order: list[int]) -> None:
    rows = random_rows(seed)
    place = torch.tensor(order).argsort()
    renamed = replace(
        rows, logits_mu=rows.logits_mu[..., order], logits_pi=rows.logits_pi[..., order], sampled=place[rows.sampled]
    )
    for line in LINES:
        torch.testing.assert_close(
            line.coefficient(renamed.signals()), line.coefficient(rows.signals()), rtol=1e-9, atol=1e-11
        )


@every_line
def test_identical_policies_give_plain_policy_gradient(line: Line) -> None:
    """mu = pi: weight 1, so g = A, whatever the method."""
    for seed in range(3):
        rows = random_rows(seed, drift=0.0)
        torch.testing.assert_close(line.coefficient(rows.signals()), rows.advantages, rtol=1e-12, atol=0)


@properties
@given(
    logits=pairs_of_logits(4, 6),
    advantage=st.floats(-2, 2),
    deltas=st.tuples(st.floats(1e-4, 2), st.floats(1e-4, 2)),
)
def test_a_mask_is_monotone_in_delta(logits, advantage: float, deltas: tuple[float, float]) -> None:
    """What a smaller region keeps, a larger one keeps too."""
    mu, pi = (tensor(z).log_softmax(-1) for z in logits)
    divergence = FORWARD_KL.value(mu.exp(), pi.exp())
    small, large = sorted(deltas)
    direction = pi - mu
    advantages = tensor(advantage).expand_as(direction)
    kept = {d: trust_region_keep(advantages, divergence, direction, d) for d in (small, large)}
    assert (kept[small] <= kept[large]).all()


@pytest.mark.parametrize(
    "line", [x for x in LINES if x.method.startswith(("dppo", "predictive"))], ids=lambda line: line.label
)
def test_more_radius_never_drops_more(line: Line) -> None:
    signals = random_rows(0, batch=8).signals()
    counts = []
    for delta in (1e-3, 0.05, 0.15, 0.5, 50.0):
        g = Line(line.method, {"delta": delta}, line.formula).coefficient(signals)
        counts.append(int((g == 0).sum()))
    assert counts == sorted(counts, reverse=True) and counts[0] > counts[-1]


def needs_the_mini_batch(line: Line) -> bool:
    method = registry.get(line.method)
    return Needs.MINI_BATCH in method.requires(method.configure(line.options))


GARBAGE = [math.nan, math.inf, -math.inf, 1e30, -1e30, 0.0]


def padded(signals: Signals, mask: torch.Tensor, garbage: float, garbage_id: int) -> Signals:
    """`signals` with everything outside the mask overwritten."""
    inside = mask.unsqueeze(-1)
    support = signals.support
    ids = replace(support, ids=torch.where(inside, support.ids, garbage_id), valid=support.valid | ~inside)
    return changed(
        replace(signals, response_mask=mask, support=ids, sampled=torch.where(mask, signals.sampled, garbage_id)),
        lambda value: torch.where(mask if value.ndim == 2 else inside, value, garbage),
    )


@batch_properties
@given(
    seed=st.integers(0, 5),
    garbage=st.sampled_from(GARBAGE),
    garbage_id=st.sampled_from([-1, -(10**9), 0, 10**12]),
    bits=st.lists(st.booleans(), min_size=32, max_size=32),
)
def test_nothing_under_the_response_mask_matters(seed: int, garbage: float, garbage_id: int, bits: list[bool]) -> None:
    signals = random_rows(seed).signals()
    mask = torch.tensor(bits).reshape(4, 8)
    dirty = padded(signals, mask, garbage, garbage_id)
    for line in LINES:
        g = line.coefficient(dirty)
        assert torch.equal(g[mask], line.coefficient(replace(signals, response_mask=mask))[mask]), line.label
        if not needs_the_mini_batch(line):
            assert torch.equal(g[mask], line.coefficient(signals)[mask]), line.label
        assert (g[~mask] == 0).all(), line.label
    clean = sanitise(dirty)
    for measure in MEASURES.values():
        assert topk_divergence(clean, measure)[~mask].abs().sum() == 0
        assert predictive_direction(clean, measure, "collision")[~mask].abs().sum() == 0


def rows_of(signals: Signals, rows: slice) -> Signals:
    """Some sequences of a batch."""
    support = replace(signals.support, ids=signals.support.ids[rows], valid=signals.support.valid[rows])
    ids = {"response_mask": signals.response_mask[rows], "sampled": signals.sampled[rows], "support": support}
    return changed(replace(signals, **ids), lambda value: value[rows])


@every_line
@pytest.mark.parametrize("size", [1, 2])
def test_micro_batches(line: Line, size: int) -> None:
    """Methods that say they need the mini-batch are given it whole by the backend."""
    if needs_the_mini_batch(line):
        return
    signals = random_rows(2).signals()
    parts = [line.coefficient(rows_of(signals, slice(i, i + size))) for i in range(0, 4, size)]
    assert torch.equal(torch.cat(parts), line.coefficient(signals))


def cast(signals: Signals, dtype: torch.dtype) -> Signals:
    return changed(signals, lambda value: value.to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("seed", range(3))
def test_dtype(dtype: torch.dtype, seed: int) -> None:
    """Inputs of `dtype` give what the same, already rounded numbers give in float64, up to float32 rounding.

    The masks compare such numbers with a radius, so tokens within rounding of an edge are left out there.
    """
    low = cast(random_rows(seed).signals(), dtype)
    high = cast(low, torch.float64)
    near = {"rtol": 1e-4, "atol": 2e-6}
    for measure in MEASURES.values():
        a, b = (topk_divergence(sanitise(s), measure) for s in (low, high))
        assert a.dtype == torch.float32
        torch.testing.assert_close(a.double(), b, **near)
        for rule in ("aggregated", "uniform"):
            a, b = (predictive_direction(sanitise(s), measure, rule) for s in (low, high))
            torch.testing.assert_close(a.double(), b, **near)
    clean = sanitise(high)
    edges = [(topk_divergence(clean, FORWARD_KL) - 0.15).abs() < 1e-4, ratio_direction(clean).abs() < 1e-4]
    edges += [predictive_direction(clean, FORWARD_KL, rule).abs() < 1e-4 for rule in ("aggregated", "uniform")]
    edges += [(clean.ratio() - edge).abs() < 1e-4 for edge in (0.8, 1.28)]
    edges += [
        (topk_divergence(clean, TV) - 0.2).abs() < 1e-4,
        (binary_tv(clean.logp_mu, clean.logp_pi) - 0.2).abs() < 1e-4,
    ]
    edges += [(binary_kl(clean.logp_mu, clean.logp_pi) - 0.05).abs() < 1e-4]
    sure = ~torch.stack(edges).any(0)
    assert sure.float().mean() > 0.5
    for line in LINES:
        g = line.coefficient(low)
        assert g.dtype == torch.float32
        torch.testing.assert_close(g.double()[sure], line.coefficient(high)[sure], **near)
