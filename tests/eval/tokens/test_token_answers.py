"""Definition tests of contrasts over seeds and of the sentences made of them, by hand; property: the order of seeds
changes no interval.

Does not cover which contrasts the study makes (test_open_questions.py).
"""

from __future__ import annotations

import math

import pytest

from eval.tokens import answers
from eval.tokens.answers import Question
from eval.tokens.contrasts import difference, pool, single

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


def test_answers_by_hand() -> None:
    """Both sentences of a decided, an undecided and a seedless difference, of a share, and of a mean."""
    lower = difference(dict.fromkeys(range(6), -0.25), dict.fromkeys(range(6), -0.125))
    row = answers.difference(QUESTION, ("staleness 2", "staleness 8"), "gap", "aggregated", lower)
    assert row["answer"] == (
        "Staleness 2 against staleness 8: the gap in unsafe-keep (aggregated tail) is -25.0 against -12.5 points, a "
        "difference of "
        "-12.5 points (95 %: -12.5 to -12.5; 6 paired seeds). The interval excludes 0: the prediction gains more over "
        "the ratio with staleness 2; not covered: age alone."
    )
    assert list(row) == list(answers.COLUMNS)
    # A lower accuracy gain is the worse one: the same numbers speak for the other side, where it still gains nothing.
    other = answers.difference(QUESTION, ("staleness 2", "staleness 8"), "accuracy_gain", "full", lower)["answer"]
    assert "the prediction loses less to the ratio with staleness 8" in other
    open_ = difference({seed: 0.1 * (-1) ** seed for seed in range(4)}, dict.fromkeys(range(4), 0.0))
    undecided = answers.difference(QUESTION, ("a", "b"), "gap", "full", open_)["answer"]
    assert "The interval holds 0: no effect is shown, and one of up to 18.4 points is not excluded" in undecided
    assert "(with 4 seeds a description)" in undecided
    nothing = difference(dict.fromkeys(range(6), 0.0), dict.fromkeys(range(6), 0.0))
    assert "up to 0.0 points" in answers.difference(QUESTION, ("a", "b"), "gap", "full", nothing)["answer"]
    lone = answers.difference(QUESTION, ("a", "b"), "gap", "full", difference({0: 0.1}, {0: 0.0}))["answer"]
    assert "no interval; 1 paired seeds" in lone and "nothing follows" in lone
    # Strata are as few as their smallest, however many seeds there are in all.
    sides = [
        {seed: value + seed % 2 / 100 for seed in seeds} for value, seeds in ((0.1, range(3)), (0.2, range(9, 18)))
    ]
    strata = answers.difference(QUESTION, ("a", "b"), "gap", "full", difference(*sides))["answer"]
    assert "3 + 9 seeds of either side" in strata and "(with 3 seeds a description)" in strata
    share = answers.level(QUESTION, "curvature", "share", "share_of_failures", "", single({0: 0.2, 1: 0.25, 2: 0.3}))[
        "answer"
    ]
    assert share.startswith("Curvature: the share of failures is 25.0 % (95 %: 12.6 to 37.4; 3 seeds).")
    assert "The seeds fix it to about 12.4 points either way" in share
    two = answers.level(QUESTION, "curvature", "share", "share_of_failures", "", single({0: 0.2, 1: 0.3}))["answer"]
    assert "(the values 20.0 and 30.0; 2 seeds). 2 seeds: not a test, so nothing follows" in two
    mean = answers.level(QUESTION, "all", "mean", "gap", "full", single(dict.fromkeys(range(6), 0.1)))["answer"]
    assert "sees less of the truth than the ratio; not" in mean


@pytest.mark.parametrize(
    ("quantity", "a", "b", "expected"),
    [
        ("gap", -0.2, -0.1, "gains more over the ratio with a"),
        ("gap", -0.1, -0.2, "gains more over the ratio with b"),
        ("gap", 0.1, -0.2, "gains more over the ratio with b"),
        ("gap", 0.1, 0.2, "loses less to the ratio with a"),
        ("gap", 0.2, 0.1, "loses less to the ratio with b"),
        ("accuracy_gain", 0.2, 0.1, "gains more over the ratio with a"),
        ("accuracy_gain", 0.1, -0.2, "gains more over the ratio with a"),
        ("accuracy_gain", -0.2, -0.1, "loses less to the ratio with b"),
        ("sign_accuracy", 0.9, 0.6, "it is larger with a"),
    ],
)
def test_the_side_that_does_better(quantity: str, a: float, b: float, expected: str) -> None:
    """Definition: of two gaps the lower one is better, of two gains the higher; where both lose, none is a gain."""
    found = difference(dict.fromkeys(range(6), a), dict.fromkeys(range(6), b))
    assert (
        f"The interval excludes 0: {'' if 'it is' in expected else 'the prediction '}{expected};"
        in (answers.difference(QUESTION, ("a", "b"), quantity, "full", found)["answer"])
    )


def test_intervals_do_not_depend_on_the_order_of_seeds() -> None:
    """Property: single, paired, stratified and pool intervals of the same values in another order are the same."""
    values = {0: 0.1, 1: 0.5, 2: 0.3, 3: -0.2, 4: 0.7, 5: 0.01, 10: 0.33}
    turned = dict(reversed(values.items()))
    others = {20: 0.4, 21: 0.1, 22: 0.3}
    assert single(values) == single(turned)
    assert difference(values, others) == difference(turned, dict(reversed(others.items())))
    assert pool({"a": values, "b": others}) == pool({"a": turned, "b": others})


def test_a_k_without_an_interval_is_not_the_smallest() -> None:
    """K = 1 has one seed: nothing is known of it, so the answer is the next; where no K has an interval, none is."""
    lone = difference({0: 0.1}, {0: 0.2})
    same = difference(dict.fromkeys(range(6), 0.1), dict.fromkeys(range(6), 0.1))
    row = answers.smallest(QUESTION, "none", {"1": lone, "2": same, "5": same})
    assert row["value"] == "2" and row["n_seeds"] == 6
    assert "From K = 2 on" in row["answer"] and "no interval: K = 1;" in row["answer"]
    assert answers.smallest(QUESTION, "none", {"1": same, "2": lone})["value"] == "V"
    none = answers.smallest(QUESTION, "none", {"1": lone, "2": lone})
    assert math.isnan(none["value"]) and "takes more seeds" in none["answer"] and "nan" not in none["answer"]


def test_smallest_k_by_hand() -> None:
    """K = 1 and 5 are told from V, 2 is not: from 10 on none is. Where the largest is told, only V is left."""
    still, moved = ({seed: sign * 0.1 for seed in range(6)} for sign in (0, 1))
    apart = {seed: 0.1 * (-1) ** seed for seed in range(6)}
    found = {k: difference(values, still) for k, values in {"1": moved, "2": apart, "5": moved, "10": apart}.items()}
    row = answers.smallest(QUESTION, "aggregated", found)
    assert row["value"] == "10" and "Told from V: K = 1, K = 5;" in row["answer"]
    assert answers.smallest(QUESTION, "none", {"1": found["1"]})["value"] == "V"
    assert answers.smallest(QUESTION, "none", {"1": found["2"]})["value"] == "1"
