"""Definition tests of contrasts over seeds and of the rows made of them, by hand; property: the order of seeds
changes no interval.

Does not cover which contrasts the study makes (test_open_questions.py).
"""

from __future__ import annotations

import math

import pytest

from eval.tokens import open_questions
from eval.tokens.contrasts import difference, pool, single
from eval.tokens.open_questions import Question

QUESTION = Question("staleness", "staleness", "age alone")


def test_shared_seeds_are_paired_and_others_are_strata() -> None:
    """Definition: a - b over seeds 1, 2 and 4, 0.1 each; over other seeds it is the difference of means, 0.25 - 0.5."""
    paired = difference({0: 9.0, 1: 0.3, 2: 0.5, 4: 0.4}, {1: 0.2, 2: 0.4, 3: -9.0, 4: 0.3})
    assert (paired.interval.mean, paired.interval.low, paired.interval.high) == pytest.approx((0.1, 0.1, 0.1))
    assert (paired.levels, paired.interval.n) == (pytest.approx((0.4, 0.3)), 3) and paired.resampled == "paired seeds"
    apart = difference({0: 0.2, 1: 0.3, 6: 0.25}, {2: 0.4, 3: 0.6, 5: 0.5})
    assert apart.interval.mean == pytest.approx(-0.25) and apart.interval.n == 6
    assert apart.interval.low < -0.25 < apart.interval.high and apart.resampled == "seeds of either side"
    # One common seed is no pair of independent sides: no interval rather than a wrong one.
    lone = difference({0: 0.2, 1: 0.3}, {1: 0.4, 2: 0.6}).interval
    assert (lone.n, lone.mean) == (1, pytest.approx(-0.1)) and math.isnan(lone.low)


def test_pooled_means() -> None:
    """Settings weigh the same whatever their seeds' number: per seed where seeds are shared, else stratified."""
    shared = pool({"a": {0: 0.0, 1: 1.0, 4: 0.5}, "b": {0: 1.0, 1: 0.0, 2: 7.0, 4: 0.5}})
    assert (shared.interval.mean, shared.interval.low, shared.interval.high) == (0.5, 0.5, 0.5)
    apart = pool({"a": {0: 0.0, 1: 0.2, 5: 0.1}, "b": {2: 1.0, 3: 1.0, 4: 1.0}})
    assert apart.interval.mean == pytest.approx(0.55) and apart.interval.n == 6


def test_rows_by_hand() -> None:
    """The row of a difference, decided or not, over pairs and over strata: numbers only, none of them a sentence."""
    lower = difference(dict.fromkeys(range(6), -0.25), dict.fromkeys(range(6), -0.125))
    row = open_questions._compare(QUESTION, ("staleness 2", "staleness 8"), "gap", "aggregated", lower)
    assert list(row) == list(open_questions.COLUMNS)
    assert row == {
        "question": "staleness",
        "axis": "staleness",
        "contrast": "staleness 2 against staleness 8",
        "kind": "difference",
        "quantity": "gap",
        "criterion": "aggregated",
        "value": -0.125,
        "low": pytest.approx(-0.125),
        "high": pytest.approx(-0.125),
        "level_a": -0.25,
        "level_b": -0.125,
        "n_seeds": 6,
        "n_smaller": 6,
        "resampled": "paired seeds",
    }
    lone = open_questions._compare(QUESTION, ("a", "b"), "gap", "full", difference({0: 0.1}, {0: 0.0}))
    assert lone["value"] == pytest.approx(0.1) and math.isnan(lone["low"]) and lone["n_seeds"] == 1
    # Strata are as few as their smallest, however many seeds there are in all.
    sides = [
        {seed: value + seed % 2 / 100 for seed in seeds} for value, seeds in ((0.1, range(3)), (0.2, range(9, 18)))
    ]
    strata = open_questions._compare(QUESTION, ("a", "b"), "gap", "full", difference(*sides))
    assert (strata["n_seeds"], strata["n_smaller"], strata["resampled"]) == (12, 3, "seeds of either side")
    share = single({0: 0.2, 1: 0.25, 2: 0.3})
    row = open_questions._row(QUESTION, "curvature", "share", "share_of_failures", "", share)
    assert row["value"] == pytest.approx(0.25) and (row["low"], row["high"]) == pytest.approx(
        (0.1258, 0.3742), abs=1e-4
    )
    assert math.isnan(row["level_a"]) and math.isnan(row["level_b"])


def test_intervals_do_not_depend_on_the_order_of_seeds() -> None:
    """Property: single, paired, stratified and pool intervals of the same values in another order are the same."""
    values = {0: 0.1, 1: 0.5, 2: 0.3, 3: -0.2, 4: 0.7, 5: 0.01, 10: 0.33}
    turned = dict(reversed(values.items()))
    others = {20: 0.4, 21: 0.1, 22: 0.3}
    assert single(values) == single(turned)
    assert difference(values, others) == difference(turned, dict(reversed(others.items())))
    assert pool({"a": values, "b": others}) == pool({"a": turned, "b": others})


def test_a_k_without_an_interval_is_not_the_smallest() -> None:
    """K = 1 has one seed: nothing is known of it, so it is the next; where no K has an interval, none is."""
    lone = difference({0: 0.1}, {0: 0.2})
    same = difference(dict.fromkeys(range(6), 0.1), dict.fromkeys(range(6), 0.1))
    row = open_questions.smallest(QUESTION, "none", {"1": lone, "2": same, "5": same})
    assert row["value"] == "2" and row["n_seeds"] == 6 and list(row) == list(open_questions.COLUMNS)
    assert open_questions.smallest(QUESTION, "none", {"1": same, "2": lone})["value"] == "V"
    none = open_questions.smallest(QUESTION, "none", {"1": lone, "2": lone})
    assert math.isnan(none["value"])


def test_smallest_k_by_hand() -> None:
    """K = 1 and 5 are told from V, 2 is not: from 10 on none is. Where the largest is told, only V is left."""
    still, moved = ({seed: sign * 0.1 for seed in range(6)} for sign in (0, 1))
    apart = {seed: 0.1 * (-1) ** seed for seed in range(6)}
    found = {k: difference(values, still) for k, values in {"1": moved, "2": apart, "5": moved, "10": apart}.items()}
    row = open_questions.smallest(QUESTION, "aggregated", found)
    assert row["value"] == "10"
    assert open_questions.smallest(QUESTION, "none", {"1": found["1"]})["value"] == "V"
    assert open_questions.smallest(QUESTION, "none", {"1": found["2"]})["value"] == "1"
