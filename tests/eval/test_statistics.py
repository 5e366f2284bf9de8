"""Intervals over seeds: definition, coverage, determinism. Whether seeds are independent runs is not covered here."""

from __future__ import annotations

import math

import numpy as np
import pytest

from eval.statistics import (
    METHODS,
    TOO_FEW,
    Method,
    bootstrap_mean,
    bootstrap_pooled_difference,
    paired_difference,
    stratified_bootstrap,
)

RUNS = {0: 0.5013, 1: 0.5226, 2: 0.4741, 3: 0.5519, 4: 0.4907, 5: 0.5102}


@pytest.mark.parametrize("method", METHODS)
def test_interval_holds_the_mean_and_repeats(method: Method) -> None:
    """Same generator seed, same interval; another seed moves it a little; n and method are reported."""
    values = list(RUNS.values())
    first = bootstrap_mean(values, np.random.default_rng(1), method=method)
    assert first == bootstrap_mean(values, np.random.default_rng(1), method=method)
    other = bootstrap_mean(values, np.random.default_rng(2), method=method)
    assert (other.low, other.high) != (first.low, first.high)
    assert other.low == pytest.approx(first.low, abs=0.005)
    assert first.mean == pytest.approx(np.mean(values))
    assert min(values) <= first.low < first.mean < first.high <= max(values)
    assert (first.n, first.method, first.note) == (6, method, "")


@pytest.mark.parametrize("values", [[], [0.4]])
def test_one_seed_has_no_interval(values: list[float]) -> None:
    """Below two seeds the limits are nan and the note says why."""
    interval = bootstrap_mean(values, np.random.default_rng(0))
    assert math.isnan(interval.low) and math.isnan(interval.high)
    assert interval.n == len(values) and interval.note == TOO_FEW
    assert math.isnan(interval.mean) == (not values)


def test_three_seeds_give_the_range() -> None:
    """The expanded interval of three values is their range, as the docstring says."""
    interval = bootstrap_mean([0.1, 0.2, 0.6], np.random.default_rng(0))
    assert (interval.low, interval.high) == pytest.approx((0.1, 0.6))


def test_percentile_against_exact_enumeration() -> None:
    """Two seeds 0 and 1: resampled means are 0, .5, 1 with chances 1/4, 1/2, 1/4, so a 40 % interval is [.5, .5]."""
    interval = bootstrap_mean([0.0, 1.0], np.random.default_rng(0), level=0.4, method="percentile")
    assert (interval.low, interval.high) == (0.5, 0.5)
    wide = bootstrap_mean([0.0, 1.0], np.random.default_rng(0), level=0.6, method="percentile")
    assert (wide.low, wide.high) == (0.0, 1.0)


def test_bca_leans_with_the_skew_and_agrees_without() -> None:
    """A right-skewed sample moves both limits up; a symmetric one leaves the percentile interval."""
    skewed = [0.0, 0.0, 0.1, 0.1, 0.2, 1.0]
    plain, bca = (bootstrap_mean(skewed, np.random.default_rng(0), method=m) for m in ("percentile", "bca"))
    assert bca.low > plain.low and bca.high > plain.high
    even = [-0.3, -0.2, -0.1, 0.1, 0.2, 0.3]
    plain, bca = (bootstrap_mean(even, np.random.default_rng(0), method=m) for m in ("percentile", "bca"))
    assert (bca.low, bca.high) == pytest.approx((plain.low, plain.high), abs=0.01)
    same = bootstrap_mean([0.3] * 5, np.random.default_rng(0), method="bca")
    assert (same.low, same.high) == pytest.approx((0.3, 0.3))


def test_coverage_at_six_seeds() -> None:
    """400 normal samples of six: the expanded 95 % interval covers about .92, the plain percentile one about .86."""
    draws = np.random.default_rng(0).normal(size=(400, 6))
    covered = {}
    for method in ("expanded", "percentile"):
        generator = np.random.default_rng(1)
        intervals = [bootstrap_mean(list(row), generator, method=method, resamples=500) for row in draws]
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
    alone = bootstrap_mean(list(a.values()), np.random.default_rng(0))
    assert paired.low > 0
    assert paired.high - paired.low < 0.05 * (alone.high - alone.low)


def test_no_common_seed() -> None:
    """Nothing to pair: nan, n = 0, and both reasons in the note."""
    paired = paired_difference({0: 0.1}, {1: 0.2}, np.random.default_rng(0))
    assert paired.difference.n == 0 and math.isnan(paired.difference.mean)
    assert TOO_FEW in paired.difference.note and "2 seed(s)" in paired.difference.note


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        ([0.1, math.nan], {}, "finite"),
        ([0.1, 0.2], {"method": "magic"}, "expanded, percentile, bca"),
        ([0.1, 0.2], {"level": 1.0}, "level"),
        ([0.1, 0.2], {"resamples": 0}, "resamples"),
    ],
)
def test_bad_input(values: list[float], options: dict[str, object], message: str) -> None:
    """Each refusal names what was wrong."""
    with pytest.raises(ValueError, match=message):
        bootstrap_mean(values, np.random.default_rng(0), **options)  # type: ignore[arg-type]


def test_one_stratum_is_the_plain_interval() -> None:
    """Agreement: one stratum of weight 1 gives bootstrap_mean's expanded interval; weight -2 turns and doubles it."""
    values = list(RUNS.values())
    plain = bootstrap_mean(values, np.random.default_rng(0))
    assert stratified_bootstrap({"a": values}, np.random.default_rng(0)) == plain
    turned = stratified_bootstrap({"a": values}, np.random.default_rng(0), weights={"a": -2.0})
    assert (turned.mean, turned.low, turned.high) == pytest.approx((-2 * plain.mean, -2 * plain.high, -2 * plain.low))


def test_difference_of_strata_by_hand() -> None:
    """Definition: strata 0, 1 and 0 (twice), so the resampled differences are 0, .5, 1 with chances 1/4, 1/2, 1/4.

    Only the first has spread: f^2 = 2 and nu = 1, so a level with Phi(sqrt(2) t) above 3/4 gives [0, 1], one below .5.
    """
    strata, weights = {"a": [0.0, 1.0], "b": [0.0, 0.0]}, {"a": 1.0, "b": -1.0}
    wide, narrow = (
        stratified_bootstrap(strata, np.random.default_rng(0), weights=weights, level=level) for level in (0.4, 0.2)
    )
    assert (wide.mean, wide.low, wide.high, wide.n) == (0.5, 0.0, 1.0, 4)
    assert (narrow.low, narrow.high) == (0.5, 0.5)
    mean = stratified_bootstrap({"a": [0.2, 0.4], "b": [0.6, 0.8, 1.0]}, np.random.default_rng(0))
    assert mean.mean == pytest.approx(0.55)
    still = stratified_bootstrap({"a": [0.25, 0.25], "b": [0.5, 0.5]}, np.random.default_rng(0), weights=weights)
    assert (still.mean, still.low, still.high) == (-0.25, -0.25, -0.25)


def test_strata_coverage() -> None:
    """400 differences of 5 and 20 seeds, the 5 with three times the spread: about .93 cover; pooling them would not."""
    random = np.random.default_rng(0)
    generator, covered, pooled = np.random.default_rng(1), [], []
    for _ in range(400):
        few, many = random.normal(0.0, 3.0, size=5), random.normal(0.0, 1.0, size=20)
        strata, weights = {"few": list(few), "many": list(many)}, {"few": 1.0, "many": -1.0}
        interval = stratified_bootstrap(strata, generator, weights=weights, resamples=500)
        covered.append(interval.low <= 0 <= interval.high)
        # What it would be with one spread for all seeds.
        spread = np.concatenate([few - few.mean(), many - many.mean()]).std() * math.sqrt(1 / 5 + 1 / 20)
        pooled.append(abs(interval.mean) <= 1.96 * spread)
    assert 0.89 <= np.mean(covered) <= 0.97
    assert np.mean(pooled) < np.mean(covered) - 0.05


def test_strata_do_not_mix() -> None:
    """Strata far apart leave the interval of their mean as narrow as their own spreads are."""
    near = {"a": [0.1, 0.2, 0.3], "b": [0.1, 0.2, 0.3]}
    far = {"a": [0.1, 0.2, 0.3], "b": [9.1, 9.2, 9.3]}
    one, other = (stratified_bootstrap(strata, np.random.default_rng(0)) for strata in (near, far))
    assert other.high - other.low == pytest.approx(one.high - one.low)


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
    """Each refusal names what was wrong; a stratum of one seed is no error but has no interval."""
    with pytest.raises(ValueError, match=message):
        stratified_bootstrap(strata, np.random.default_rng(0), weights=weights)
    lonely = stratified_bootstrap({"a": [0.1, 0.2], "b": [0.3]}, np.random.default_rng(0))
    assert math.isnan(lonely.low) and lonely.note == f"{TOO_FEW} in b" and lonely.mean == pytest.approx(0.225)


def test_a_pooled_difference_weighs_seeds_by_their_tokens() -> None:
    """definition: 3 of 4 and 1 of 6 pooled are 4 of 10, against 5 of 10; the interval of equal seeds has no width."""
    found = bootstrap_pooled_difference([(3, 4, 1, 2), (1, 6, 4, 8)], np.random.default_rng(0))
    assert found.mean == pytest.approx(0.4 - 0.5) and found.low < found.mean < found.high
    equal = bootstrap_pooled_difference([(1, 4, 2, 4)] * 5, np.random.default_rng(0))
    assert (equal.low, equal.mean, equal.high) == (-0.25, -0.25, -0.25)
    assert math.isnan(bootstrap_pooled_difference([(1, 4, 2, 4)], np.random.default_rng(0)).low)
    assert math.isnan(bootstrap_pooled_difference([(0, 0, 2, 4)] * 3, np.random.default_rng(0)).mean)
