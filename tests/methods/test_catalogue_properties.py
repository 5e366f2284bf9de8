"""Claim (property): for every method of ours g depends on what it may look at alone.

Padding, what stands under the response mask, the order of the rows, other rows (unless the method declares that it
ranks over the mini-batch), the split into micro-batches and the dtype change nothing beyond rounding; no g carries a
gradient; on-policy g is A, with one exception. Not covered: the edge of the number range (test_catalogue_limits.py),
whether an engine delivers such inputs, and a method that a user has added, which owes its contract (test_check.py).
"""

from __future__ import annotations

import importlib
import itertools
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from eval.method_checks.synthetic import mapped
from methods import registry
from methods.registry import Needs
from methods.rows import row_max, row_quantile
from methods.signals import Scope, Signals, Support, sanitise
from tests.methods.batches import cast, coefficient, random_batch, selected, spoilt
from tests.methods.equalities import EQUALITIES, Equality, equal_by_default
from tests.methods.helpers import SHIPPED, batch_properties

INF = math.inf
NAMES = SHIPPED
every_method = pytest.mark.parametrize("name", NAMES)

# One sample of a KL penalty has a gradient at pi = mu, which only the expectation removes.
MOVES_ON_POLICY = {"penalty_kl"}


def needs(name: str) -> Needs:
    method = registry.get(name)
    return method.requires(method.configure())


def ranks_over_the_mini_batch(name: str) -> bool:
    return Needs.MINI_BATCH in needs(name)


@every_method
def test_a_file_is_short_and_tells_its_source(name: str) -> None:
    method = registry.get(name)
    module = importlib.import_module(method.module)
    assert module.__file__ is not None and module.__doc__ is not None
    assert len(Path(module.__file__).read_text().splitlines()) < 100
    for part in ("g = ", "Source:", "Shapes:", "Detached:", "Public code:", "arXiv"):
        assert part in module.__doc__, part
    assert method.mark in "FSIN" and f"[{method.mark}]" in module.__doc__
    assert method.title and "arXiv" in method.source


@every_method
def test_padding(name: str) -> None:
    """Two more columns of garbage on the right: the same g, and nothing in the new columns."""
    signals = random_batch(0).signals
    garbage = {torch.bool: False, torch.int64: 10**9}

    def padded(x: Tensor) -> Tensor:
        new = x.new_full((x.shape[0], 2, *x.shape[2:]), garbage.get(x.dtype, math.nan))
        return torch.cat([x, new], 1)

    g = coefficient(name, mapped(signals, padded))
    length = signals.logp_pi.shape[1]
    torch.testing.assert_close(g[:, :length], coefficient(name, signals), rtol=1e-12, atol=0)
    assert (g[:, length:] == 0).all()


@batch_properties
@given(
    seed=st.integers(0, 3),
    garbage=st.sampled_from([math.nan, INF, -INF, 1e30, -1e30, 0.0]),
    garbage_id=st.sampled_from([-1, -(10**9), 0, 10**12]),
)
def test_nothing_under_the_response_mask_matters(seed: int, garbage: float, garbage_id: int) -> None:
    signals = random_batch(seed).signals
    dirty, mask = spoilt(signals, garbage, garbage_id), signals.response_mask
    for name in NAMES:
        g = coefficient(name, dirty)
        assert torch.equal(g[mask], coefficient(name, signals)[mask]), name
        assert (g[~mask] == 0).all(), name


@batch_properties
@given(
    seed=st.integers(0, 3), shifts=st.tuples(st.floats(-50, 50), st.floats(-50, 50)), order=st.permutations(range(12))
)
def test_logits_may_shift_and_ids_may_be_renamed(seed: int, shifts: tuple[float, float], order: list[int]) -> None:
    batch = random_batch(seed)
    place = torch.tensor(order).argsort()
    rows = replace(
        batch.rows,
        logits_mu=batch.rows.logits_mu[..., order] + shifts[0],
        logits_pi=batch.rows.logits_pi[..., order] + shifts[1],
        sampled=place[batch.rows.sampled],
    )
    renamed = replace(batch, rows=rows, logits_old=batch.logits_old[..., order])
    for name in NAMES:
        torch.testing.assert_close(
            coefficient(name, renamed.signals), coefficient(name, batch.signals), rtol=1e-8, atol=1e-10, msg=name
        )


@every_method
def test_the_order_of_the_rows(name: str) -> None:
    signals = random_batch(1).signals
    order = torch.randperm(len(signals.logp_pi), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        coefficient(name, selected(signals, order)), coefficient(name, signals)[order], rtol=1e-12, atol=0
    )


@every_method
def test_other_rows_do_not_leak_into_a_row(name: str) -> None:
    """Field case 26: split 12, 6+6, 1 each; a token of one row changes. Methods that declare it rank over all rows."""
    if ranks_over_the_mini_batch(name):
        return
    signals = random_batch(2).signals
    whole = coefficient(name, signals)
    size = len(whole)
    other = replace(signals, logp_pi=signals.logp_pi.clone())
    other.logp_pi[0] = -6.0
    changed = coefficient(name, other)
    torch.testing.assert_close(changed[1:], whole[1:], rtol=0, atol=0)
    for part in (1, 6):
        pieces = [coefficient(name, selected(signals, slice(i, i + part))) for i in range(0, size, part)]
        torch.testing.assert_close(torch.cat(pieces), whole, rtol=1e-12, atol=0)


@every_method
def test_on_policy_g_is_the_advantage(name: str) -> None:
    """mu = pi_old = pi, field case 19: every method gives the plain policy gradient, up to the stated exceptions."""
    for seed in range(2):
        batch = random_batch(seed)
        same = batch.rows.logits_mu
        on_policy = replace(batch, rows=replace(batch.rows, logits_pi=same), logits_old=same)
        signals = on_policy.signals
        g, advantages = coefficient(name, signals), torch.where(batch.mask, signals.advantages, 0.0)
        if name in MOVES_ON_POLICY:
            assert not torch.allclose(g, advantages)
        else:
            torch.testing.assert_close(g, advantages, rtol=1e-9, atol=1e-12)


@every_method
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dtype(name: str, dtype: torch.dtype) -> None:
    """Inputs of `dtype` give what the same, already rounded numbers give in float64; the result is float32."""
    low = cast(random_batch(0).signals, dtype)
    g = coefficient(name, low)
    assert g.dtype == torch.float32
    torch.testing.assert_close(g.double(), coefficient(name, cast(low, torch.float64)), rtol=2e-4, atol=2e-5)


@every_method
def test_no_gradient_flows_through_g(name: str) -> None:
    signals = random_batch(0).signals
    asking = mapped(signals, lambda x: x.clone().requires_grad_() if x.is_floating_point() else x)
    assert not coefficient(name, asking).requires_grad


@every_method
def test_an_empty_batch(name: str) -> None:
    """Field case 4: nothing valid at all."""
    signals = random_batch(0).signals
    empty = replace(signals, response_mask=torch.zeros_like(signals.response_mask))
    assert (coefficient(name, empty) == 0).all()


def pooled(name: str, options: dict | None = None) -> Tensor:
    return torch.cat([coefficient(name, random_batch(seed).signals, options).flatten() for seed in range(3)])


@pytest.mark.parametrize("pair", EQUALITIES, ids=lambda pair: f"{pair.a}={pair.b}")
def test_a_stated_equality_holds(pair: Equality) -> None:
    torch.testing.assert_close(pooled(pair.a, pair.a_options), pooled(pair.b, pair.b_options), rtol=1e-12, atol=0)


def test_no_other_two_methods_coincide() -> None:
    """Defaults off-policy: two methods give the same g only where equalities.py says so."""
    g = {name: pooled(name) for name in NAMES}
    same = {frozenset(p) for p in itertools.combinations(g, 2) if torch.allclose(g[p[0]], g[p[1]], rtol=1e-9, atol=0)}
    assert same == equal_by_default()


def test_a_large_radius_does_not_make_drpo_pg_is() -> None:
    """A limit, not an equality: at the released delta the two differ by up to 8 per cent (and do so here)."""
    drpo, plain = pooled("drpo"), pooled("pg_is")
    moved = plain != 0
    weight = drpo[moved] / plain[moved]
    assert ((weight > 0.92) & (weight < 1.08)).all() and (weight - 1).abs().max() > 0.03


@every_method
def test_only_what_is_needed_is_read(name: str) -> None:
    """With every field that it does not declare taken away a method gives the same g."""
    signals = sanitise(random_batch(0).signals)
    method = registry.get(name)
    declared = needs(name)
    fields_of = {
        Needs.TOP_K: ("support",),
        Needs.SUM_PI_SQUARED: ("sum_pi_squared",),
        Needs.FULL: ("full",),
        Needs.RECOMPUTED_ANCHOR: ("logp_old",),
        Needs.RANDOM: ("uniforms",),
    }
    bare = {"entropy": None} | {f: None for need, names in fields_of.items() if need not in declared for f in names}
    if not declared & (Needs.TOP_K | Needs.FULL):
        bare |= {"vocab_size": None, "sampled": None}
    if not ranks_over_the_mini_batch(name):
        bare["scope"] = Scope.ROW
    g = method.coefficient(replace(signals, **bare), method.configure())
    assert torch.equal(g, method.coefficient(signals, method.configure()))


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
@every_method
def test_an_empty_batch_has_an_empty_coefficient(name: str, shape: tuple[int, int]) -> None:
    """No rows, or rows without a token: nothing to weigh, and no crash in a maximum or a quantile."""
    method = registry.get(name)
    needs = method.requires(method.configure())
    empty = torch.zeros(shape)
    ids, flags = torch.zeros(*shape, 3, dtype=torch.int64), torch.zeros(*shape, 3, dtype=torch.bool)
    wide = torch.zeros(*shape, 3)
    signals = Signals(
        logp_pi=empty,
        logp_mu=empty,
        advantages=empty,
        response_mask=torch.zeros(shape, dtype=torch.bool),
        logp_old=empty,
        support=Support(ids, wide, wide, flags),
        sum_pi_squared=empty,
        entropy=empty,
        vocab_size=9,
        sampled=ids[..., 0],
        uniforms=empty,
        scope=Scope.MINI_BATCH,
    )
    assert Needs.FULL not in needs
    assert method.coefficient(signals, method.configure()).shape == shape


def test_statistics_of_rows_without_a_token_are_one_number_a_row() -> None:
    values, mask = torch.zeros(2, 0), torch.zeros(2, 0, dtype=torch.bool)
    for statistic in (row_max(values, mask), row_quantile(values, mask, 0.9)):
        assert statistic.tolist() == [[0.0], [0.0]]
