"""agreement: the shipped torch divergences and directions against the formulas that `derivations` proves, at 50 digits.

Covered: every measure, full vocabulary and every tail rule, two-class forms. Not covered: the float32 and bfloat16
paths, and what the torch side states in place of infinity (a mass below 1e-38 under a logarithm, a tail below its
rounding under a fraction): tests/methods.
"""

from __future__ import annotations

from itertools import permutations

import pytest
import torch
from mpmath import mp, mpf
from torch import Tensor

from agreement_rows import CASES, Exact, Rows, exact, signals
from derivations import formulas
from methods.directions import TAIL_RULES, full_direction, predictive_direction, ratio_direction
from methods.masks import topk_divergence
from methods.measures import BINARY_MEASURES, MEASURES, Measure

# Every direction is a sum of products of numbers below Exact.size, so float64 leaves no more than a few V * 1e-16.
TOLERANCE = 1e-13
OTHERS = sorted(set(MEASURES) - {"forward_kl"})
# Infinite at a mass of zero, or (Hellinger) of infinite slope there: a tail below float64's rounding decides.
STEEP = ("reverse_kl", "jeffreys", "chi2_pearson", "chi2_neyman", "hellinger2")


def cases_of(measure: str) -> list[str]:
    """All cases but those in which the torch side states a number in place of one that float64 cannot hold."""
    beyond = {"certain to the last digit"} if measure in STEEP else set()
    if measure.startswith("chi2"):
        beyond.add("near-certain tokens")
    return [case for case in CASES if case not in beyond]


def pairs(measures: list[str]) -> list[tuple[str, str]]:
    return [(measure, case) for measure in measures for case in cases_of(measure)]


def shipped(rows: Rows, rule: str, measure: Measure = MEASURES["forward_kl"]) -> Tensor:
    """The torch side, [N]."""
    if rule == "full":
        return full_direction(measure, rows.logits_mu.softmax(-1), rows.logits_pi.softmax(-1), rows.sampled)
    return predictive_direction(signals(rows), measure, rule)[0]


def largest_gap(rows: Rows, rule: str, proved_rule: str, measure: Measure = MEASURES["forward_kl"]) -> float:
    """Largest difference, in units of Exact.size."""
    with mp.workdps(50):
        positions = exact(rows)
        return max(
            float(abs(mpf(ours) - position.direction(proved_rule, measure.name))) / position.size(measure.name)
            for ours, position in zip(shipped(rows, rule, measure).tolist(), positions, strict=True)
        )


@pytest.mark.parametrize("rule", ["full", *TAIL_RULES])
@pytest.mark.parametrize("case", CASES)
def test_direction_is_the_proved_formula(case, rule):
    assert largest_gap(CASES[case], rule, rule) < TOLERANCE


@pytest.mark.parametrize(("measure", "case"), pairs(OTHERS))
def test_direction_of_every_measure_is_the_proved_formula(measure, case):
    rows = CASES[case].first(3)
    for rule in ("full", *TAIL_RULES):
        assert largest_gap(rows, rule, rule, MEASURES[measure]) < TOLERANCE, rule


def test_both_rooms_know_the_same_names():
    assert set(TAIL_RULES) == set(formulas.RULES)
    assert set(MEASURES) == set(formulas.MEASURES)


def test_the_comparison_tells_measures_and_rules_apart():
    """Another formula on either side would be noticed: at a tail of several tokens no two coincide."""
    rows, rules = CASES["one candidate"].first(3), ("full", *TAIL_RULES)
    ours = {(name, rule): shipped(rows, rule, MEASURES[name]).tolist() for name in MEASURES for rule in rules}
    with mp.workdps(30):
        positions = exact(rows)
        proved = {(name, rule): [float(p.direction(rule, name)) for p in positions] for name, rule in ours}
    for here, there in permutations(ours, 2):
        gaps = [abs(x - y) for x, y in zip(ours[here], proved[there], strict=True)]
        assert max(gaps) > 1e6 * TOLERANCE * max(p.size(here[0]) for p in positions), (here, there)


@pytest.mark.parametrize(("measure", "case"), pairs(sorted(MEASURES)))
def test_divergence_is_the_one_that_is_differentiated(measure, case):
    """Full and top-K; near zero a value keeps the digits of its terms, not its own."""
    rows = CASES[case].first(3)
    with mp.workdps(50):
        positions = exact(rows)
        values = [[float(position.divergence(measure, full)) for position in positions] for full in (False, True)]
        proved = torch.tensor(values, dtype=torch.float64)
        sizes = torch.tensor([p.size(measure) for p in positions], dtype=torch.float64)
    ours = torch.stack(
        [
            topk_divergence(signals(rows), MEASURES[measure])[0],
            MEASURES[measure].value(rows.logits_mu.softmax(-1), rows.logits_pi.softmax(-1)),
        ]
    )
    assert ((ours - proved).abs() <= 1e-9 * proved + 10 * TOLERANCE * sizes).all(), (ours, proved)


def two_class_name(name: str) -> str:
    measure = name.removeprefix("binary_")
    return "forward_kl" if measure == "kl" else measure


def test_every_two_class_form_has_its_formula():
    assert {two_class_name(name) for name in BINARY_MEASURES} == set(formulas.MEASURES)


@pytest.mark.parametrize("case", [case for case in CASES if "certain" not in case])
@pytest.mark.parametrize("name", BINARY_MEASURES)
def test_two_class_value_and_direction_are_the_proved_ones(name, case):
    """The direction is that of the ratio, at every token; a value is compared where 1 - p keeps its digits."""
    row, measure = signals(CASES[case]), two_class_name(name)
    values, ratios = BINARY_MEASURES[name](row.logp_mu, row.logp_pi)[0], ratio_direction(row)[0]
    with mp.workdps(50):
        for place, position in enumerate(exact(CASES[case])):
            mu_k, pi_k = (policy[position.sampled] for policy in (position.mu, position.pi))
            proved = formulas.divergence_binary(measure, mu_k, pi_k, backend="mpmath")
            assert float(values[place]) == pytest.approx(float(proved), rel=1e-9, abs=1e-15)
            if abs(mu_k - pi_k) < 1e-12:
                continue
            squares = mp.fsum(p * p for p in position.pi)
            slope = formulas.direction_binary(measure, mu_k, pi_k, squares, backend="mpmath")
            assert float(mp.sign(slope)) == float(torch.sign(ratios[place]))


@pytest.mark.parametrize("measure", MEASURES)
def test_local_term_is_the_shipped_logit_gradient(measure):
    """h_k of every token, on which all directions rest."""
    rows = CASES["typical"].first(2)
    ours = MEASURES[measure].logit_gradient(rows.logits_mu.softmax(-1), rows.logits_pi.softmax(-1))
    with mp.workdps(50):
        for place, position in enumerate(exact(rows)):
            for token in range(0, len(position.mu), 7):
                proved = formulas.local_term(position.mu, position.pi, token, backend="mpmath", measure=measure)
                assert abs(float(ours[place, token]) - float(proved)) < TOLERANCE * position.size(measure)


def test_sizes_are_small_where_policies_are():
    """The scale of the tolerance is no licence: it stays near one in the cases that carry the comparison."""
    with mp.workdps(50):
        sizes = [position.size(measure) for measure in MEASURES for position in exact(CASES["typical"])]
    assert max(sizes) < 100 and isinstance(exact(CASES["two tokens"])[0], Exact)
