"""Intervals over seeds: definition, coverage, determinism. Whether seeds are independent runs is not covered here."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from eval.statistics import (
    BOOTSTRAPS,
    Bootstrap,
    Method,
    clopper_pearson,
    mean_interval,
    paired_difference,
    pooled_difference,
    stratified_mean,
)

RUNS = {0: 0.5013, 1: 0.5226, 2: 0.4741, 3: 0.5519, 4: 0.4907, 5: 0.5102}


@pytest.mark.parametrize("method", BOOTSTRAPS)
def test_bootstrap_holds_the_mean_and_repeats(method: Bootstrap) -> None:
    """Same generator seed, same interval; another seed moves it a little; n and method are reported."""
    values = list(RUNS.values())
    first = mean_interval(values, np.random.default_rng(1), method=method)
    assert first == mean_interval(values, np.random.default_rng(1), method=method)
    other = mean_interval(values, np.random.default_rng(2), method=method)
    assert (other.low, other.high) != (first.low, first.high)
    assert other.low == pytest.approx(first.low, abs=0.005)
    assert first.mean == pytest.approx(np.mean(values))
    assert min(values) <= first.low < first.mean < first.high <= max(values)
    assert (first.n, first.method, first.note) == (6, method, "")


@pytest.mark.parametrize(
    ("values", "note"),
    [([], "no seed"), ([0.4], "1 seed: not a test"), ([0.4, 0.5], "2 seeds: not a test")],
)
@pytest.mark.parametrize("method", ["t", "expanded"])
def test_one_or_two_seeds_are_values(values: list[float], note: str, method: Method) -> None:
    """No bracket that a reader could take for a test: nan limits, a note that says so, and the values themselves."""
    interval = mean_interval(values, np.random.default_rng(0), method=method)
    assert math.isnan(interval.low) and math.isnan(interval.high)
    assert (interval.n, interval.note, interval.values) == (len(values), note, tuple(values))
    assert math.isnan(interval.mean) == (not values)


def test_three_to_nine_seeds_have_students_interval() -> None:
    """definition: mean -+ t_{0.975, 2} sd / sqrt(3), by hand for 0, 1, 2: 1 -+ 4.303 / 1.732; no randomness in it."""
    interval = mean_interval([0.0, 1.0, 2.0], np.random.default_rng(0))
    assert (interval.low, interval.high) == pytest.approx((1 - 2.484, 1 + 2.484), abs=5e-4)
    assert interval == mean_interval([0.0, 1.0, 2.0], np.random.default_rng(7))
    assert (interval.method, interval.note, interval.values) == ("t", "", ())
    six = mean_interval(list(RUNS.values()), np.random.default_rng(0), level=0.9)
    theirs = stats.ttest_1samp(list(RUNS.values()), 0.0).confidence_interval(0.9)
    assert (six.low, six.high) == pytest.approx((theirs.low, theirs.high))


def test_from_ten_seeds_a_bootstrap_checks() -> None:
    """Nine small gains and one large one: t holds 0 and the bootstrap does not, which the note says; else no note."""
    skewed = [0.01] * 9 + [1.0]
    checked = mean_interval(skewed, np.random.default_rng(0))
    assert checked.low < 0 and "disagree about 0" in checked.note
    assert mean_interval(skewed[1:], np.random.default_rng(0)).note == ""
    assert mean_interval([0.5 + 0.01 * i for i in range(10)], np.random.default_rng(0)).note == ""


def test_a_bracket_of_nothing_leaves_zero_out_as_often_as_it_says() -> None:
    """property: 2,000 null contrasts of 3, 5 and 9 seeds: 0.05 +- 0.015 of the intervals leave 0 out (bootstrap:
    0.25)."""
    random = np.random.default_rng(0)
    for n in (3, 5, 9):
        found = [mean_interval(list(row), random) for row in random.normal(size=(2000, n))]
        assert np.mean([not i.low <= 0 <= i.high for i in found]) == pytest.approx(0.05, abs=0.015)


def test_percentile_against_exact_enumeration() -> None:
    """Seeds 0, 0, 1: resampled means are 0, 1/3, 2/3, 1 in 8, 12, 6, 1 of 27: 30 % is [1/3, 1/3], 60 % to 2/3."""
    interval = mean_interval([0.0, 0.0, 1.0], np.random.default_rng(0), level=0.3, method="percentile")
    assert (interval.low, interval.high) == pytest.approx((1 / 3, 1 / 3))
    wide = mean_interval([0.0, 0.0, 1.0], np.random.default_rng(0), level=0.6, method="percentile")
    assert (wide.low, wide.high) == pytest.approx((0.0, 2 / 3))


def test_bca_leans_with_the_skew_and_agrees_without() -> None:
    """A right-skewed sample moves both limits up; a symmetric one leaves the percentile interval."""
    skewed = [0.0, 0.0, 0.1, 0.1, 0.2, 1.0]
    plain, bca = (mean_interval(skewed, np.random.default_rng(0), method=m) for m in ("percentile", "bca"))
    assert bca.low > plain.low and bca.high > plain.high
    even = [-0.3, -0.2, -0.1, 0.1, 0.2, 0.3]
    plain, bca = (mean_interval(even, np.random.default_rng(0), method=m) for m in ("percentile", "bca"))
    assert (bca.low, bca.high) == pytest.approx((plain.low, plain.high), abs=0.01)
    same = mean_interval([0.3] * 5, np.random.default_rng(0), method="bca")
    assert (same.low, same.high) == pytest.approx((0.3, 0.3))


def test_coverage_at_six_seeds() -> None:
    """400 normal samples of six: the expanded 95 % interval covers about 0.92, the plain percentile one about 0.86."""
    draws = np.random.default_rng(0).normal(size=(400, 6))
    covered = {}
    for method in ("expanded", "percentile"):
        generator = np.random.default_rng(1)
        intervals = [mean_interval(list(row), generator, method=method, resamples=500) for row in draws]
        covered[method] = np.mean([interval.low <= 0 <= interval.high for interval in intervals])
    assert 0.88 <= covered["expanded"] <= 0.97
    assert covered["percentile"] < covered["expanded"] - 0.02


def test_paired_difference_uses_common_seeds() -> None:
    """A constant gap has a degenerate interval; seeds without a partner are left out and counted in the note."""
    shifted = {seed: value - 0.1 for seed, value in RUNS.items()} | {9: 0.0}
    paired = paired_difference(RUNS, shifted, np.random.default_rng(0))
    assert paired.seeds == tuple(RUNS) and paired.wins == 6
    assert (paired.difference.low, paired.difference.high) == pytest.approx((0.1, 0.1))
    assert paired.difference.n == 6 and "1 seed(s) without a partner" in paired.difference.note


def test_pairing_removes_what_seeds_share() -> None:
    """Seeds that differ a lot but shift together: the paired interval excludes 0, far narrower than either mean's."""
    a = {seed: 0.2 * seed for seed in range(6)}
    b = {seed: 0.2 * seed - 0.02 - 0.001 * seed for seed in range(6)}
    paired = paired_difference(a, b, np.random.default_rng(0)).difference
    alone = mean_interval(list(a.values()), np.random.default_rng(0))
    assert paired.low > 0
    assert paired.high - paired.low < 0.05 * (alone.high - alone.low)


def test_no_common_seed() -> None:
    """Nothing to pair: nan, n = 0, and both reasons in the note."""
    paired = paired_difference({0: 0.1}, {1: 0.2}, np.random.default_rng(0))
    assert paired.difference.n == 0 and math.isnan(paired.difference.mean)
    assert "no seed" in paired.difference.note and "2 seed(s)" in paired.difference.note


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        ([0.1, math.nan], {}, "finite"),
        ([0.1, 0.2], {"method": "magic"}, "t, expanded, percentile, bca"),
        ([0.1, 0.2], {"level": 1.0}, "level"),
        ([0.1, 0.2], {"resamples": 0}, "resamples"),
    ],
)
def test_bad_input(values: list[float], options: dict[str, object], message: str) -> None:
    """Each refusal names what was wrong."""
    with pytest.raises(ValueError, match=message):
        mean_interval(values, np.random.default_rng(0), **options)  # type: ignore[arg-type]


def test_one_stratum_is_the_plain_interval() -> None:
    """Agreement: one stratum of weight 1 gives mean_interval's t interval; weight -2 turns and doubles it."""
    values = list(RUNS.values())
    plain = mean_interval(values, np.random.default_rng(0))
    one = stratified_mean({"a": values})
    assert (one.mean, one.low, one.high, one.n) == pytest.approx((plain.mean, plain.low, plain.high, 6))
    turned = stratified_mean({"a": values}, weights={"a": -2.0})
    assert (turned.mean, turned.low, turned.high) == pytest.approx((-2 * plain.mean, -2 * plain.high, -2 * plain.low))


def test_difference_of_strata_is_welchs() -> None:
    """Agreement: scipy's Welch interval; a stratum without spread lends none; equal ones have no width."""
    a, b = [0.1, 0.4, 0.35], [0.9, 0.2, 0.3, 0.55]
    ours = stratified_mean({"a": a, "b": b}, weights={"a": 1.0, "b": -1.0})
    theirs = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high)) and ours.n == 7
    alone = mean_interval(a, np.random.default_rng(0))
    half = stratified_mean({"a": a, "b": [0.0, 0.0, 0.0]}, weights={"a": 1.0, "b": -1.0})
    assert (half.low, half.high) == pytest.approx((alone.low, alone.high))
    assert stratified_mean({"a": [0.2, 0.4, 0.3], "b": [0.6, 0.8, 1.0]}).mean == pytest.approx(0.55)
    still = stratified_mean({"a": [0.25] * 3, "b": [0.5] * 3}, weights={"a": 1.0, "b": -1.0})
    assert (still.mean, still.low, still.high) == (-0.25, -0.25, -0.25)


def test_strata_coverage() -> None:
    """400 differences of 5 and 20 seeds, the 5 with three times the spread: about 0.95 cover; pooling them would
    not."""
    random = np.random.default_rng(0)
    covered, pooled = [], []
    for _ in range(400):
        few, many = random.normal(0.0, 3.0, size=5), random.normal(0.0, 1.0, size=20)
        strata, weights = {"few": list(few), "many": list(many)}, {"few": 1.0, "many": -1.0}
        interval = stratified_mean(strata, weights=weights)
        covered.append(interval.low <= 0 <= interval.high)
        # What it would be with one spread for all seeds.
        spread = np.concatenate([few - few.mean(), many - many.mean()]).std() * math.sqrt(1 / 5 + 1 / 20)
        pooled.append(abs(interval.mean) <= 1.96 * spread)
    assert 0.92 <= np.mean(covered) <= 0.98
    assert np.mean(pooled) < np.mean(covered) - 0.05


@pytest.mark.parametrize(
    ("strata", "weights", "message"),
    [
        ({}, None, "at least one stratum"),
        ({"a": [0.1, math.nan]}, None, "finite"),
        ({"a": [0.1, 0.2]}, {"b": 1.0}, r"weight .* \['a'\]"),
        ({"a": [0.1, 0.2]}, {"a": 0.0}, "weight other than 0"),
    ],
)
def test_bad_strata(strata: dict[str, list[float]], weights: dict[str, float] | None, message: str) -> None:
    """Each refusal names what was wrong; a stratum of two seeds is no error but has no interval."""
    with pytest.raises(ValueError, match=message):
        stratified_mean(strata, weights=weights)
    lonely = stratified_mean({"a": [0.1, 0.2, 0.3], "b": [0.3, 0.4]})
    assert math.isnan(lonely.low) and lonely.note == "2 seeds: not a test in b" and lonely.mean == pytest.approx(0.275)


def test_a_pooled_difference_weighs_seeds_by_their_tokens() -> None:
    """definition: 4 of 11 pooled against 6 of 12; its error is the jackknife's, by hand; equal seeds have no width."""
    rows = [(3, 4, 1, 2), (1, 6, 4, 8), (0, 1, 1, 2)]
    found = pooled_difference(rows)
    assert found.mean == pytest.approx(4 / 11 - 0.5)
    without = np.array([1 / 7 - 5 / 10, 3 / 5 - 2 / 4, 4 / 10 - 5 / 10])
    error = math.sqrt(2 / 3 * ((without - without.mean()) ** 2).sum())
    assert found.high - found.mean == pytest.approx(stats.t.ppf(0.975, 2) * error)
    equal = pooled_difference([(1, 4, 2, 4)] * 5)
    assert (equal.low, equal.mean, equal.high) == (-0.25, -0.25, -0.25)
    assert math.isnan(pooled_difference([(1, 4, 2, 4)] * 2).low)
    assert math.isnan(pooled_difference([(0, 0, 2, 4)] * 3).mean)
    assert math.isnan(pooled_difference([(1, 2, 2, 4), (0, 0, 1, 2), (0, 0, 1, 2)]).low), "one seed has it all"


def test_exact_interval_of_a_rate() -> None:
    """definition: 0 of n ends at 1 - 0.025^(1/n) (0.71, 0.52 for 3, 5); 3 of 3 starts at 0.29; k and n - k are
    mirrored."""
    for n in (3, 5, 20):
        low, high = clopper_pearson(0, n)
        assert low == 0.0 and high == pytest.approx(1 - 0.025 ** (1 / n))
        assert clopper_pearson(n, n) == pytest.approx((1 - high, 1.0))
    assert clopper_pearson(2, 7) == pytest.approx(tuple(1 - x for x in reversed(clopper_pearson(5, 7))))
    assert all(map(math.isnan, clopper_pearson(0, 0)))
    with pytest.raises(ValueError, match="4 of 3"):
        clopper_pearson(4, 3)
