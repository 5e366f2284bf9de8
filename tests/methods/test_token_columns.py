"""Definition and property tests of the token study's columns, on random policies in float64.

Does not cover how a training comes by its logits (tests/backend/test_token_records.py).
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from methods.measures import FORWARD_KL, MEASURES
from methods.support import distinct
from methods.tokens import columns as token_study
from methods.tokens import schema

V, K = 30, 5


def tokens(seed: int, count: int = 40, spread: float = 1.0) -> tuple[token_study.Tokens, torch.Tensor, torch.Tensor]:
    """Tokens sampled from mu, with the support a rollout would record, and the logits of mu and pi [count, V]."""
    random = torch.Generator().manual_seed(seed)
    mu = torch.randn(count, V, generator=random, dtype=torch.float64) * 2
    pi = mu + spread * torch.randn(count, V, generator=random, dtype=torch.float64)
    sampled = torch.multinomial(mu.softmax(-1), 1, generator=random)
    logp = mu.log_softmax(-1)
    ids = torch.cat([logp.topk(K).indices, sampled], -1)
    made = token_study.Tokens(
        sampled=sampled.squeeze(-1),
        advantages=torch.randn(count, generator=random, dtype=torch.float64),
        support_ids=ids,
        support_logp=logp.gather(-1, ids).float(),  # as recorded
        support_valid=distinct(ids),
        vocab_size=V,
        ratio_cap=5.0,
    )
    return made, mu, pi


def kl(mu: torch.Tensor, pi: torch.Tensor) -> torch.Tensor:
    return (mu.softmax(-1) * (mu.log_softmax(-1) - pi.log_softmax(-1))).sum(-1)


def stepped(pi: torch.Tensor, sampled: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """Logits after c (e_k - pi)."""
    unit = torch.nn.functional.one_hot(sampled, V).double() - pi.softmax(-1)
    return pi + c.unsqueeze(-1) * unit


def test_finite_step_is_the_difference_of_two_divergences() -> None:
    made, mu, pi = tokens(0)
    c = torch.linspace(-4, 4, len(pi), dtype=torch.float64)
    change = token_study.finite_step_change(mu.softmax(-1), pi.softmax(-1), made.sampled, c)
    torch.testing.assert_close(change, kl(mu, stepped(pi, made.sampled, c)) - kl(mu, pi))


@given(seed=st.integers(0, 10_000), size=st.floats(1e-3, 3.0), sign=st.sampled_from([-1.0, 1.0]))
def test_a_predicted_increase_is_never_wrong_for_a_single_token_step(seed: int, size: float, sign: float) -> None:
    """KL(mu || softmax z) is convex in z [N]: where the slope is positive, every step of any size raises it."""
    made, mu, pi = tokens(seed, count=8)
    columns = token_study.before(made, mu, pi, ks=(1,))
    slope = sign * columns[schema.direction("forward_kl", "full")].double()
    moved = stepped(pi, made.sampled, torch.full((8,), sign * size, dtype=torch.float64))
    change = kl(mu, moved) - kl(mu, pi)
    # Columns are float32: a slope below its rounding says nothing.
    assert (change[slope > 1e-6] > 0).all()


@pytest.mark.parametrize("name", schema.MEASURES)
def test_full_columns_are_the_divergence_and_its_slope(name: str) -> None:
    made, mu, pi = tokens(1)
    columns = token_study.before(made, mu, pi, ks=())
    z = pi.clone().requires_grad_()
    value = MEASURES[name].value(mu.softmax(-1), z.softmax(-1))
    (gradient,) = torch.autograd.grad(value.sum(), z)
    unit = stepped(torch.zeros_like(pi), made.sampled, torch.ones(len(pi), dtype=torch.float64)) * 0
    unit = torch.nn.functional.one_hot(made.sampled, V).double() - pi.softmax(-1) + unit
    close = {"rtol": 1e-4, "atol": 1e-6}
    torch.testing.assert_close(columns[schema.divergence(name, "full", "before")].double(), value.detach(), **close)
    torch.testing.assert_close(
        columns[schema.direction(name, "full")].double(), (gradient * unit).sum(-1).detach(), **close
    )


def test_the_sweep_at_the_recorded_k_is_the_recorded_support() -> None:
    made, mu, pi = tokens(2)
    columns = token_study.before(made, mu, pi, ks=(K, V))
    for rule in ("none", "aggregated", "uniform", "collision"):
        torch.testing.assert_close(columns[schema.sweep(K, rule)], columns[schema.direction("forward_kl", rule)])
    torch.testing.assert_close(columns[schema.sweep(K)], columns[schema.divergence("forward_kl", "reduced", "before")])
    torch.testing.assert_close(columns[schema.sweep(V)], columns[schema.divergence("forward_kl", "full", "before")])


def test_a_single_token_step_is_recognised_as_the_tokens_own() -> None:
    """For a small pure step the own step is its c, and nothing is left for the others."""
    made, mu, pi = tokens(3)
    c = torch.full((len(pi),), 1e-2, dtype=torch.float64)
    columns = token_study.after(made, mu, pi, stepped(pi, made.sampled, c))
    torch.testing.assert_close(columns["own_step"].double(), c, rtol=0.02, atol=1e-5)
    slope = token_study.before(made, mu, pi, ks=())[schema.direction("forward_kl", "full")]
    torch.testing.assert_close(columns["batch_first_order"], 1e-2 * slope, rtol=0.03, atol=2e-6)


def test_chunks_do_not_change_a_column(monkeypatch: pytest.MonkeyPatch) -> None:
    made, mu, pi = tokens(4)
    whole = token_study.before(made, mu, pi, ks=(1, 2))
    monkeypatch.setattr(token_study, "CHUNK_ELEMENTS", 7 * V)
    for name, column in token_study.before(made, mu, pi, ks=(1, 2)).items():
        assert torch.equal(column, whole[name]), name


def test_nothing_moved_means_no_change() -> None:
    made, mu, pi = tokens(5)
    first, second = token_study.before(made, mu, pi, ks=()), token_study.after(made, mu, pi, pi)
    for name in schema.MEASURES:
        for where in ("full", "reduced"):
            before, after = (schema.divergence(name, where, when) for when in ("before", "after"))
            assert torch.equal(first[before], second[after])
    assert second["own_step"].abs().max() < 1e-6 and second["batch_first_order"].abs().max() < 1e-6


def test_identical_policies_have_no_direction() -> None:
    """But for the reduced TV: its slope is a sign, which rounding gives a tail of two equal masses."""
    made, mu, _ = tokens(6)
    columns = token_study.before(made, mu, mu, ks=(1, 3))
    for name, column in columns.items():
        if "direction" in name and (not name.startswith("direction_tv") or name.endswith("full")):
            assert column.abs().max() < 1e-6, name
    assert columns[schema.divergence("forward_kl", "full", "before")].max() < 1e-6
    assert FORWARD_KL.name == schema.SWEEP_MEASURE


def test_no_tokens_give_empty_columns() -> None:
    made, mu, pi = tokens(7, count=0)
    columns = {**token_study.before(made, mu, pi, ks=(1, 3)), **token_study.after(made, mu, pi, pi)}
    assert all(len(column) == 0 for column in columns.values()) and set(columns) <= set(schema.columns((1, 3)))


def test_columns_have_types_that_a_record_knows() -> None:
    plain = {"int16", "int32", "float32", "bool"}
    assert set(schema.columns((1,)).values()) == plain | {"list<int32>", "list<float32>"}


def test_the_certificate_is_the_methods_own() -> None:
    """Row by row, and as narrow: the study hands the tokens over as one row."""
    made, mu, pi = tokens(8, count=6)
    columns = token_study.before(made, mu, pi, ks=())
    truth = columns[schema.direction("forward_kl", "full")].double()
    low, high = columns["certificate_low"], columns["certificate_high"]
    assert low.shape == high.shape == (6,) and (low <= truth + 1e-5).all() and (truth - 1e-5 <= high).all()
    logp, squared = pi.float().log_softmax(-1), pi.float().softmax(-1).square().sum(-1)
    signals = made.signals(logp, squared)
    for field in ("logp_pi", "logp_mu", "advantages", "response_mask", "sum_pi_squared"):
        assert getattr(signals, field).shape == (1, 6), field
    assert torch.equal(signals.support.ids[0], made.support_ids) and signals.vocab_size == V
    picked = logp.gather(-1, made.sampled.unsqueeze(-1)).squeeze(-1)
    assert torch.equal(signals.logp_pi[0], picked)
    assert torch.allclose(
        signals.logp_mu[0], mu.log_softmax(-1).gather(-1, made.sampled.unsqueeze(-1)).squeeze(-1).float()
    )


def test_the_columns_of_a_token() -> None:
    """What recorder and reader agree on; another set is another version of the schema."""
    names = "step mini_batch response position token length age sampled_row"
    assert set(schema.POSITION) == set(names.split()) and schema.VERSION == 2
    signals = "advantage logp_pi logp_mu logp_mu_forward sum_pi_squared entropy top_mass_mu coefficient keep"
    assert set(schema.SIGNALS) == set(signals.split())
    assert set(schema.SUPPORT) == {"support_ids", "support_logp_mu", "support_logp_pi"}
    assert set(schema.STEP_SIZES) == {"own_step", "own_step_change", "batch_first_order"}


def test_the_finite_step_is_as_long_as_the_advantage_and_the_capped_ratio_make_it() -> None:
    made, mu, pi = tokens(9, count=200, spread=3.0)
    columns = token_study.before(made, mu, pi, ks=())
    ratio = (columns["logp_pi"] - mu.log_softmax(-1).gather(-1, made.sampled.unsqueeze(-1)).squeeze(-1)).exp()
    assert (ratio > 5).any() and (ratio < 5).any()
    for size in schema.STEPS:
        c = size * ratio.clamp(max=5.0) * made.advantages
        expected = token_study.finite_step_change(mu.softmax(-1), pi.softmax(-1), made.sampled, c)
        torch.testing.assert_close(columns[schema.finite_step(size)].double(), expected, rtol=1e-3, atol=1e-5)
