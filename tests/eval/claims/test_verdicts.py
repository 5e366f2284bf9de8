"""The verdicts' own tests: what words a known truth gets. Seeds are fixed; the slow variants repeat more.

Not covered: whether a margin of claims.yaml is the right one, and data other than those drawn here.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from eval.claims.claims import Claim
from eval.claims.intervals import (
    Estimate,
    above,
    brown_forsythe,
    mean_of_settings,
    nothing,
    rate,
    rate_above,
    seeds_for,
)
from eval.claims.verdicts import (
    CONTRADICTED,
    DIRECTION,
    NOT_TESTABLE,
    REPLICATED,
    UNDERPOWERED,
    WORDS,
    Verdict,
    decide,
    holm,
    judge,
    p_values,
)
from eval.statistics import clopper_pearson, pooled_difference

MARGIN = 0.005
BASE = Claim("X", "A", "Figure 1", "a trains better than b.", "mean reward", "S", "difference", margin=MARGIN)
EQUAL, AS_GOOD = replace(BASE, kind="equivalence"), replace(BASE, kind="at_least_as_good")
RATE = replace(BASE, kind="rate", margin=0.25)
PAPER = replace(BASE, paper_value=-0.027, margin=0.0135)


def one(claim: Claim, estimate: Estimate) -> Verdict:
    return judge([claim], [estimate])[0]


def drawn(rng: np.random.Generator, truth: float, sd: float, n: int, settings: int = 1) -> Estimate:
    return mean_of_settings({f"s{i}": rng.normal(truth, sd, n).tolist() for i in range(settings)})


def exact(value: float, sd: float, n: int) -> Estimate:
    """An estimate of exactly that mean and standard deviation."""
    values = np.resize([1.0, -1.0], n) if n % 2 == 0 else np.append(np.resize([1.0, -1.0], n - 1), 0.0)
    return mean_of_settings({"s": (value + values / values.std(ddof=1) * sd).tolist()})


def words(claim: Claim, truth: float, sd: float, n: int, repeats: int, seed: int = 0) -> Counter[str]:
    rng = np.random.default_rng(seed)
    return Counter(decide([claim], [drawn(rng, truth, sd, n)])[0][2] for _ in range(repeats))


def test_a_planted_effect_of_two_margins_is_replicated() -> None:
    """Self-test 1: n = 20, the scatter of masks."""
    assert words(BASE, 2 * MARGIN, 0.0022, 20, 300)[REPLICATED] >= 0.95 * 300


@pytest.mark.parametrize("repeats", [250, pytest.param(2_000, marks=pytest.mark.slow)])
def test_a_grid_of_nothing_replicates_a_difference_in_one_grid_of_twenty_at_most(repeats: int) -> None:
    """Self-test 2: 40 claims of no effect with the scatter of a free method, so that the size is often reached."""
    rng = np.random.default_rng(1)
    grids, rows = 0, 0
    for _ in range(repeats):
        estimates = [drawn(rng, 0.0, 0.02, 5) for _ in range(40)]
        found = [said for _, _, said in decide([BASE] * 40, estimates)]
        grids += REPLICATED in found
        rows += sum(p_values(BASE, estimate)[0] <= 0.025 for estimate in estimates)
    assert grids <= 0.05 * repeats
    # Without the correction a grid has one false row: the test above could fail.
    assert 0.7 * repeats <= rows <= 1.3 * repeats


def test_equal_variants_are_equivalent_where_the_scatter_allows_it_and_open_where_not() -> None:
    """Self-test 3."""
    assert words(EQUAL, 0.0, 0.0022, 20, 200)[REPLICATED] >= 0.9 * 200
    wide = words(EQUAL, 0.0, 0.008, 10, 200)
    assert wide[UNDERPOWERED] >= 0.5 * 200
    for sd in (0.0022, 0.008):
        assert words(EQUAL, MARGIN, sd, 10, 400)[CONTRADICTED] <= 0.05 * 400
        assert words(EQUAL, MARGIN, sd, 10, 400)[REPLICATED] <= 0.05 * 400


@pytest.mark.parametrize("claim", [BASE, PAPER, EQUAL, AS_GOOD], ids=lambda claim: claim.kind)
@pytest.mark.parametrize("value", [-0.05, -0.027, -0.01, -0.001, 0.0, 0.001, 0.004, 0.006, 0.02])
def test_one_estimate_never_goes_from_contradicted_to_replicated_or_back_as_seeds_are_added(
    claim: Claim, value: float
) -> None:
    """Self-test 4, monotone: "direction only" may follow a contradiction, for it claims no size."""
    found = [one(claim, exact(value, 0.01, n)).word for n in (3, 4, 6, 10, 20, 50, 200, 1_000, 10_000)]
    assert not {REPLICATED, CONTRADICTED} <= set(found)
    if REPLICATED in found:
        assert set(found[found.index(REPLICATED) :]) == {REPLICATED}
    assert found[-1] != UNDERPOWERED


@pytest.mark.parametrize("paper", [-0.027, 0.027, 0.004])
@pytest.mark.parametrize("value", [-0.3, -0.027, -0.002, 0.002, 0.027, 0.3])
@pytest.mark.parametrize("n", [3, 6, 40])
def test_the_mirror_image_has_the_mirror_images_word(value: float, paper: float, n: int) -> None:
    """Self-test 4, mirror."""
    claim = replace(BASE, paper_value=paper, margin=abs(paper) / 2)
    found = one(claim, exact(value, 0.02, n))
    other = one(replace(claim, paper_value=-paper), exact(-value, 0.02, n))
    assert found.word == other.word
    assert (found.support, found.against) == pytest.approx((other.support, other.against))


def test_another_size_is_direction_only() -> None:
    """Self-test 5: thirteen times the paper's, and a thirteenth; and what its own error excludes."""
    assert one(PAPER, exact(-0.027 * 13, 0.2, 61)).word == DIRECTION
    assert one(PAPER, exact(-0.027 / 13, 0.002, 61)).word == DIRECTION
    assert one(PAPER, exact(-0.027 / 13, 0.02, 61)).word == CONTRADICTED
    assert one(PAPER, exact(-0.027, 0.02, 61)).word == REPLICATED
    assert one(replace(PAPER, paper_error=0.001), exact(-0.04, 0.005, 61)).word == DIRECTION
    assert one(replace(PAPER, paper_error=0.0135), exact(-0.04, 0.005, 61)).word == REPLICATED
    assert one(BASE, exact(MARGIN * 0.9, 0.001, 20)).word == DIRECTION


@pytest.mark.parametrize(
    "values", [[0.1], [0.1, 0.2], [0.1] * 5, [0.0] * 20, [0.1, 0.2, math.nan], [0.1, math.inf, 0.2], []]
)
@pytest.mark.parametrize("claim", [BASE, PAPER, EQUAL, AS_GOOD, replace(BASE, kind="ratio", paper_value=0.1)])
def test_degenerate_seeds_get_no_word_and_a_reason(values: list[float], claim: Claim) -> None:
    """Self-test 6."""
    found = one(claim, mean_of_settings({"s": values}))
    assert found.word == NOT_TESTABLE
    assert found.estimate.note and math.isnan(found.estimate.low)


def test_degenerate_rates_get_no_word_and_a_reason() -> None:
    """Self-test 6: no collapse on either side; fewer than six seeds."""
    for counts in ((0, 20, 0, 20), (3, 3, 0, 3), (5, 5, 0, 5)):
        found = one(RATE, rate(counts, 6))
        assert found.word == NOT_TESTABLE and found.note


@pytest.mark.parametrize(
    ("counts", "expected"),
    [((5, 10, 0, 10), REPLICATED), ((4, 10, 0, 10), UNDERPOWERED), ((5, 20, 0, 20), REPLICATED),
     ((0, 10, 5, 10), CONTRADICTED), ((60, 300, 30, 300), DIRECTION)],
)  # fmt: skip
def test_rates_are_compared_exactly(counts: tuple[int, int, int, int], expected: str) -> None:
    assert one(RATE, rate(counts, 6)).word == expected


def test_the_exact_test_of_a_rate_is_fishers() -> None:
    """3 of 3 against none: 1 / C(6, 3) by hand."""
    assert rate_above((3, 3, 0, 3)) == pytest.approx(1 / 20)
    assert rate_above((0, 3, 3, 3)) == 1.0


def _normal(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.normal(0.0, 1.0, n)


def _exponential(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.exponential(1.0, n) - 1.0


def _collapsing(rng: np.random.Generator, n: int) -> np.ndarray:
    """A tenth of the runs lose ten standard deviations; mean 0."""
    return rng.normal(0.0, 1.0, n) - 10.0 * (rng.random(n) < 0.1) + 1.0


@pytest.mark.parametrize("n", [3, 5, 10, 20])
@pytest.mark.parametrize(
    ("draw", "least"),
    [(_normal, {3: 0.93, 5: 0.93, 10: 0.93, 20: 0.93}), (_exponential, {3: 0.86, 5: 0.85, 10: 0.87, 20: 0.89}),
     (_collapsing, {3: 0.70, 5: 0.60, 10: 0.60, 20: 0.80})],
)  # fmt: skip
def test_coverage_of_the_interval_at_each_number_of_seeds(draw, least: dict[int, float], n: int) -> None:  # type: ignore[no-untyped-def]
    """Self-test 7. No interval of a mean covers where collapses are rare: the bounds there record how far it falls."""
    rng = np.random.default_rng(n)
    repeats = 1_000
    covered = 0
    for _ in range(repeats):
        found = mean_of_settings({"s": draw(rng, n).tolist()})
        covered += found.low <= 0.0 <= found.high
    assert least[n] <= covered / repeats <= 0.97


@pytest.mark.parametrize("unequal", [False, True])
def test_coverage_of_a_mean_over_settings(unequal: bool) -> None:
    """Self-test 7: ten settings of three seeds, one spread or two."""
    rng = np.random.default_rng(3)
    covered = halves = 0.0
    for _ in range(500):
        sds = [4.0 if unequal and i < 5 else 1.0 for i in range(10)]
        found = mean_of_settings({f"s{i}": rng.normal(i, sd, 3).tolist() for i, sd in enumerate(sds)})
        covered += found.low <= 4.5 <= found.high
        halves += (found.high - found.low) / 2
    assert 0.92 <= covered / 500 <= 0.98
    if not unequal:  # t of 20 degrees times 1 / sqrt(30)
        assert halves / 500 == pytest.approx(2.086 / math.sqrt(30), rel=0.06)


def test_coverage_of_pooled_counts_and_of_exact_rates() -> None:
    """Self-test 7: counts of 2 to 12 tokens a seed; a rate of 0.2 of 6, 10, 20 seeds."""
    rng = np.random.default_rng(4)
    covered = 0
    for _ in range(400):
        wholes = rng.integers(2, 13, (20, 2))
        counts = [(int(rng.binomial(a, 0.3)), int(a), int(rng.binomial(b, 0.5)), int(b)) for a, b in wholes]
        found = pooled_difference(counts)
        covered += found.low <= -0.2 <= found.high
    assert 0.92 <= covered / 400 <= 0.98
    for n in (6, 10, 20):
        inside = [low <= 0.2 <= high for low, high in (clopper_pearson(k, n) for k in range(n + 1))]
        drawn_k = rng.binomial(n, 0.2, 2_000)
        assert np.mean([inside[k] for k in drawn_k]) >= 0.94


def test_relabelled_variants_are_a_null() -> None:
    """Self-test 8: within each seed the names are permuted, so a difference of 0.05 has no side."""
    rng = np.random.default_rng(5)
    rewards = rng.normal(0.45, 0.01, (20, 2)) + np.array([0.05, 0.0])
    assert one(BASE, mean_of_settings({"s": (rewards[:, 0] - rewards[:, 1]).tolist()})).word == REPLICATED
    supported = 0
    for _ in range(400):
        swapped = rng.permuted(rewards, axis=1)
        estimate = mean_of_settings({"s": (swapped[:, 0] - swapped[:, 1]).tolist()})
        supported += p_values(BASE, estimate)[0] <= 0.025
    assert supported <= 0.045 * 400


def test_another_row_moves_no_number_of_this_one() -> None:
    """Self-test 9: only the word may change, by Holm's correction."""
    rng = np.random.default_rng(6)
    mine, other = drawn(rng, 0.006, 0.004, 6), drawn(rng, 0.0, 0.02, 4)
    alone, beside = (
        one(BASE, mine),
        judge([BASE, replace(BASE, id="Y")] + [replace(BASE, id="Z")], [mine, other, other])[0],
    )
    assert (alone.estimate, alone.support, alone.against) == (beside.estimate, beside.support, beside.against)
    # A claim that cannot be tested is in no family.
    assert judge([BASE, BASE], [mine, nothing("no run")])[0].word == alone.word


def test_every_interval_has_its_n_and_its_kind() -> None:
    """Self-test 10, the half that concerns this table."""
    rng = np.random.default_rng(7)
    for found in (drawn(rng, 0, 1, 3), drawn(rng, 0, 1, 12), drawn(rng, 0, 1, 3, settings=4), rate((3, 10, 1, 10), 6)):
        assert found.n >= 3 and found.kind not in ("none", "values") and found.low < found.high


def test_ours_have_words_of_their_own_and_a_family_of_their_own() -> None:
    rng = np.random.default_rng(8)
    strong, none = drawn(rng, 0.02, 0.002, 20), drawn(rng, 0.0, 0.002, 20)
    own = replace(BASE, mark="N")
    found = judge([own, own, BASE], [strong, none, strong])
    assert [verdict.word for verdict in found] == ["supported", "not supported", REPLICATED]
    assert not {"supported", "not supported", "open"} & set(WORDS)


def test_holm_by_hand() -> None:
    assert holm([0.01, math.nan, 0.04, 0.03]) == pytest.approx([0.03, math.nan, 0.06, 0.06], nan_ok=True)
    assert holm([]) == []


def test_at_least_as_good_allows_the_margin_and_no_more() -> None:
    assert one(AS_GOOD, exact(0.0, 0.002, 20)).word == REPLICATED
    assert one(AS_GOOD, exact(-0.006, 0.0005, 20)).word == CONTRADICTED
    assert one(AS_GOOD, exact(-0.003, 0.008, 6)).word == UNDERPOWERED


def test_a_ratio_is_of_the_papers_size_or_not() -> None:
    share = replace(BASE, kind="ratio", paper_value=0.06, margin=math.nan)
    assert one(share, exact(0.05, 0.005, 20)).word == REPLICATED
    assert one(share, exact(0.02, 0.005, 20)).word == CONTRADICTED
    assert one(share, exact(0.04, 0.02, 20)).word == UNDERPOWERED


def test_the_seeds_needed_come_from_the_upper_bound_of_the_scatter() -> None:
    """n = 3 of sd 0.0022: its 80 % bound is 0.0022 sqrt(2 / 0.446) = 0.00466, which takes 9 or 10 seeds, not 4."""
    assert seeds_for(exact(0.0, 0.0022, 3), MARGIN).split()[0] in ("9", "10")


def test_unequal_spreads_are_not_pooled() -> None:
    rng = np.random.default_rng(9)
    groups = {"a": rng.normal(0, 1, 20).tolist(), "b": rng.normal(0, 30, 20).tolist()}
    assert brown_forsythe([np.array(values) for values in groups.values()]) < 1e-3
    assert mean_of_settings(groups).kind == "t, own variances"
    assert above(mean_of_settings(groups), -1e9) == pytest.approx(0.0)
