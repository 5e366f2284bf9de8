"""The search for counterexamples finds what brute force finds, and nothing where a theorem forbids it.

Not covered: denominators above those that the theorem names.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import pytest

from derivations import formulas, search


def direction(mu, pi, k):
    return formulas.direction_full(mu, pi, k)


def test_compositions_are_all_and_in_order():
    assert list(search.compositions(4, 2)) == [(1, 3), (2, 2), (3, 1)]
    assert sum(1 for _ in search.compositions(9, 4)) == 56
    assert list(search.compositions(2, 3)) == []


def test_smallest_ratio_example_is_the_smallest():
    """Exact fractions over all policies of three tokens, without the search's order and symmetries."""
    example = search.smallest("forward_kl", "ratio", 3, 3)
    for whole in range(3, example.denominator + 1):
        rows = [[Fraction(part, whole) for part in parts] for parts in search.compositions(whole, 3)]
        wrong = [(mu, pi) for mu, pi in product(rows, rows) if (pi[0] - mu[0]) * direction(mu, pi, 0) < 0]
        assert bool(wrong) == (whole == example.denominator)


@pytest.mark.parametrize("measure", formulas.MEASURES)
def test_two_tokens_have_no_counterexample(measure, monkeypatch):
    monkeypatch.setattr(search, "LARGEST", 9)
    search.smallest.cache_clear()
    assert search.smallest(measure, "ratio", 2, 2) is None
    assert search.smallest(measure, "local", 2, 2) is None


def test_merged_tail_of_an_f_divergence_has_no_counterexample(monkeypatch):
    monkeypatch.setattr(search, "LARGEST", 8)
    for measure in formulas.MEASURES[:-1]:
        assert search.smallest(measure, "merged", 3, 1) is None, measure
    search.smallest.cache_clear()


def test_a_support_is_a_top_k_and_the_sampled_token():
    assert search.is_topk_support((1, 3, 2, 2), 2) and search.is_topk_support((3, 2, 1), 1)
    assert not search.is_topk_support((3, 1, 2, 1), 2), "a rare token that nobody sampled"
    assert not search.is_topk_support((1, 3, 2), 1)
    assert str(search.smallest("chi2_neyman", "collision", 4, 2)).startswith(r"$\mu = (2, 2, 1, 2) / 7$")


def test_sampled_and_likeliest_token_are_retained():
    for rule in formulas.RULES:
        example = search.smallest("forward_kl", rule, 4, 2)
        assert example.mu[1] >= max(example.mu[2:])
        mu, pi = example.policies("math")
        assert sum(mu) == pytest.approx(1) and sum(pi) == pytest.approx(1)
