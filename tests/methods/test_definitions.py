"""Claim: in float64 each method's g, and each measure and direction, equals its formula in the papers.

Not covered here: inputs at the edge of the number range (test_limits.py) and where gradients flow (test_gradients.py).
"""

from __future__ import annotations

import pytest
import torch

from methods.catalogue import drpo, predictive_aggregated, predictive_uniform
from methods.directions import full_direction, predictive_direction, ratio_direction
from methods.masks import topk_divergence
from methods.measures import FORWARD_KL, MEASURES, TV, binary_kl, binary_tv
from methods.signals import sanitise
from tests.methods import reference, reference_masks
from tests.methods.entries import ENTRIES
from tests.methods.helpers import SHIPPED, Line, Rows, lines, random_rows, tensor

SEEDS = range(4)
EXACT = {"rtol": 1e-10, "atol": 1e-12}


def check_definition(line: Line, rows: Rows) -> None:
    """g of every position against the formula in plain Python."""
    assert line.formula is not None
    want = [[line.formula(token) for token in row] for row in rows.tokens()]
    torch.testing.assert_close(line.coefficient(rows.signals()), tensor(want), **EXACT)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("line", [line for line in lines() if line.formula], ids=lambda line: line.label)
def test_coefficient_equals_the_formula(line: Line, seed: int) -> None:
    check_definition(line, random_rows(seed))


def test_every_shipped_method_has_a_definition_test() -> None:
    with_objective = {entry.method for entry in ENTRIES}  # test_catalogue_definitions.py
    assert {line.method for line in lines()} | with_objective == set(SHIPPED)


@pytest.mark.parametrize(
    "line",
    [
        Line("pg_is", {"ratio_cap": 1.5}, lambda t: reference.pg_is(t, 1.5)),
        Line("drpo", {"delta": 0.3, "ratio_cap": 1.2}, lambda t: reference.drpo(t, 0.3, 1.2)),
        Line(
            "ppo_clip_higher",
            {"eps_low": 0.4, "eps_high": 0.1, "dual_clip": 1.5, "ratio_cap": None},
            lambda t: reference.ppo(t, 0.4, 0.1, 1.5, None),
        ),
        Line(
            "dppo_topk_kl",
            {"delta": [0.02, 0.4], "ratio_cap": 1.2},
            lambda t: reference.dppo_topk_kl(t, 0.02, 0.4, 1.2),
        ),
        Line(
            "predictive_aggregated",
            {"delta": [0.4, 0.02], "ratio_cap": None},
            lambda t: reference.predictive(t, "aggregated", 0.4, 0.02, None),
        ),
        Line(
            "predictive_uniform",
            {"delta": (0.02, 0.4), "ratio_cap": 1.2},
            lambda t: reference.predictive(t, "uniform", 0.02, 0.4, 1.2),
        ),
        *(Line(*row) for row in reference_masks.OPTIONS),
    ],
    ids=lambda line: line.label,
)
def test_options_mean_what_they_say(line: Line) -> None:
    """Every option away from its default, and different for the two signs of the advantage."""
    for seed in SEEDS:
        check_definition(line, random_rows(seed))


def test_the_masks_act_on_both_signs() -> None:
    """The random rows are no soft target: each mask drops and keeps tokens outside the region, for A > 0 and A < 0."""
    for line in lines():
        if line.method not in ("dppo_topk_kl", "predictive", "predictive_aggregated", "predictive_uniform"):
            continue
        seen = set()
        for seed in SEEDS:
            signals = sanitise(random_rows(seed).signals())
            outside = topk_divergence(signals, FORWARD_KL) > 0.15
            dropped = line.coefficient(signals) == 0
            for sign in (1, -1):
                chosen = outside & (torch.sign(signals.advantages) == sign)
                seen |= {(sign, bool(value)) for value in dropped[chosen]}
        assert seen == {(1, True), (1, False), (-1, True), (-1, False)}, line.label


@pytest.mark.parametrize("seed", SEEDS)
def test_divergence_and_directions_equal_the_formula(seed: int) -> None:
    rows = random_rows(seed)
    signals, tokens = sanitise(rows.signals()), rows.tokens()

    def want(formula) -> torch.Tensor:
        return tensor([[formula(token) for token in row] for row in tokens])

    mu, pi = rows.logits_mu.softmax(-1), rows.logits_pi.softmax(-1)
    for got, formula in (
        (topk_divergence(signals, FORWARD_KL), reference.topk_kl),
        (topk_divergence(signals, TV), reference.topk_tv),
        (full_direction(FORWARD_KL, mu, pi, rows.sampled), reference.direction_full),
        (predictive_direction(signals, FORWARD_KL, "aggregated"), lambda t: reference.direction_topk(t, "aggregated")),
        (predictive_direction(signals, FORWARD_KL, "uniform"), lambda t: reference.direction_topk(t, "uniform")),
    ):
        torch.testing.assert_close(got, want(formula), **EXACT)
    moved = want(lambda t: t.pi[t.sampled] - t.mu[t.sampled])
    assert torch.equal(torch.sign(ratio_direction(signals)), torch.sign(moved))


@pytest.mark.parametrize("name", sorted(MEASURES))
def test_measure_equals_the_formula(name: str) -> None:
    rows = random_rows(7)
    mu, pi = rows.logits_mu.softmax(-1).flatten(0, 1), rows.logits_pi.softmax(-1).flatten(0, 1)
    want = tensor([reference.divergence(name, m, p) for m, p in zip(mu.tolist(), pi.tolist(), strict=True)])
    torch.testing.assert_close(MEASURES[name].value(mu, pi), want, **EXACT)


def test_binary_measures_equal_the_two_outcome_divergence() -> None:
    grid = [1e-9, 1e-6, 3e-6, 0.01, 0.3, 0.5, 0.7, 0.99, 1 - 1e-6]
    for mu in grid:
        for pi in grid:
            logs = tensor([mu]).log(), tensor([pi]).log()
            kl = reference.divergence("forward_kl", [mu, 1 - mu], [pi, 1 - pi])
            torch.testing.assert_close(binary_kl(*logs), tensor([kl]), rtol=1e-8, atol=1e-14)
            torch.testing.assert_close(binary_tv(*logs), tensor([abs(mu - pi)]), **EXACT)


def test_drpo_weight_is_zero_at_its_radius_and_negative_beyond() -> None:
    """Hand values: outward shift 0.15, 0.3 and inward 0.15 of delta = 0.15, for both signs."""
    mu = tensor([0.5, 0.5, 0.5, 0.5]).log()
    pi = tensor([0.65, 0.8, 0.35, 0.5]).log()
    torch.testing.assert_close(drpo.weight(tensor([1.0] * 4), pi, mu, 0.15), tensor([0.0, -1.0, 2.0, 1.0]))
    torch.testing.assert_close(drpo.weight(tensor([-1.0] * 4), pi, mu, 0.15), tensor([2.0, 3.0, 0.0, 1.0]))


@pytest.mark.parametrize("module", [predictive_aggregated, predictive_uniform], ids=["aggregated", "uniform"])
def test_a_planted_ratio_direction_is_noticed(module, monkeypatch: pytest.MonkeyPatch) -> None:
    """The definition test has teeth: with the ratio in place of the prediction it fails."""
    name = module.__name__.rpartition(".")[2]
    line = next(line for line in lines() if line.method == name)
    monkeypatch.setattr(module, "predictive_direction", lambda signals, *_: ratio_direction(signals))
    with pytest.raises(AssertionError):
        for seed in SEEDS:
            check_definition(line, random_rows(seed))


def test_a_swapped_tail_rule_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two tail rules differ on these rows often enough to change the definition test's outcome."""
    monkeypatch.setattr(
        predictive_aggregated,
        "predictive_direction",
        lambda signals, measure, _: predictive_direction(signals, measure, "uniform"),
    )
    line = next(line for line in lines() if line.method == "predictive_aggregated")
    with pytest.raises(AssertionError):
        for seed in SEEDS:
            check_definition(line, random_rows(seed))
