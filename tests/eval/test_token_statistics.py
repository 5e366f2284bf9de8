"""Definition tests of the token study's rates and tests, on tables small enough to work by hand; honesty tests on
made-up runs: a planted gap is found, and labels without information give a gap whose interval covers 0.

Does not cover real records (tests/backend/test_token_records.py).
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from eval.tokens.rates import rates
from eval.tokens.significance import (
    flip_test,
    power_of,
    relabel_test,
    seeds_needed,
    sign_test,
    smallest_gap,
)
from eval.tokens.summary import summarise
from eval.tokens.verdicts import rows as verdict_rows
from eval.tokens.verdicts import verdict


def flags(text: str) -> np.ndarray:
    return np.array([c == "1" for c in text])


def test_rates_of_eight_tokens_by_hand() -> None:
    """Tokens 0 to 7; the last is inside the region. Q = {0, ..., 4}; the criterion keeps 0, 1, 2, the ratio 3, 4."""
    outside = flags("11111110")
    outward = flags("00011011")
    ratio = flags("11100010")
    change = np.array([1.0, -1.0, -1.0, 1.0, -1.0, 1.0, 1.0, 5.0])
    got = rates(outside, outward, ratio, change)
    assert (got.outside, got.disagreement, got.kept, got.kept_ratio) == (7, 5, 3, 2)
    assert (got.unsafe, got.unsafe_ratio, got.corrective, got.corrective_ratio) == (1, 1, 2, 1)
    assert got.unsafe_keep == pytest.approx(1 / 3) and got.unsafe_keep_ratio == pytest.approx(1 / 2)
    assert got.gap == pytest.approx(-1 / 6)
    assert got.unsafe_drop == pytest.approx(1 / 2)
    # Right: the criterion on 1, 2, 3, 6; the ratio on 0, 4, 6.
    assert (got.right, got.right_ratio, got.rose) == (4, 3, 4)
    assert got.accuracy_gain == pytest.approx(1 / 7)


def test_a_criterion_that_keeps_nothing_has_no_rate() -> None:
    got = rates(flags("11"), flags("11"), flags("00"), np.array([1.0, -1.0]))
    assert math.isnan(got.unsafe_keep) and math.isnan(got.gap) and got.unsafe_keep_ratio == 0.5


def test_no_change_is_neither_unsafe_nor_corrective() -> None:
    got = rates(flags("1"), flags("0"), flags("1"), np.array([0.0]))
    assert (got.kept, got.unsafe, got.corrective, got.right) == (1, 0, 0, 0)


def test_sign_test_by_hand() -> None:
    """9 of 10: two-sided p = 2 (1 + 10) / 1024; the paper's 38 of 61 gives .072."""
    assert sign_test([-1.0] * 9 + [1.0]) == pytest.approx(22 / 1024)
    assert sign_test([-1.0] * 38 + [1.0] * 23) == pytest.approx(0.072, abs=5e-4)
    assert sign_test([0.0, -1.0]) == 1.0
    assert math.isnan(sign_test([0.0]))


def test_flip_test_by_hand() -> None:
    """Three equal differences: of 8 sign patterns two have a mean as far from 0."""
    assert flip_test([1.0, 1.0, 1.0], np.random.default_rng(0)) == 2 / 8
    assert math.isnan(flip_test([], np.random.default_rng(0)))


def test_relabel_test_by_hand() -> None:
    """One seed, one token each side, one unsafe: both labellings are as extreme, so p = 1."""
    assert relabel_test([(1, 1, 1, 0)], np.random.default_rng(0)) == 1.0
    assert math.isnan(relabel_test([(0, 3, 0, 1)], np.random.default_rng(0)))


def test_power_by_simulation_and_inverse() -> None:
    random = np.random.default_rng(0)
    draws = random.normal(0.5, 1.0, size=(20_000, 34))
    statistic = draws.mean(axis=1) / draws.std(axis=1, ddof=1) * math.sqrt(34)
    from scipy import stats

    simulated = np.mean(np.abs(statistic) > stats.t.ppf(0.975, 33))
    assert power_of(34, 1.0, 0.5) == pytest.approx(simulated, abs=0.01)
    needed = seeds_needed(1.0, 0.5)
    assert power_of(needed, 1.0, 0.5) >= 0.8 > power_of(needed - 1, 1.0, 0.5)
    # Two seeds need a gap of 11.5 standard deviations.
    for n in (2, 3, 30):
        assert power_of(n, 1.0, smallest_gap(n, 1.0)) == pytest.approx(0.8, abs=1e-6)
    # The search by doubling meets the first n that is enough; equal differences but for rounding need two seeds.
    for sd in (0.03, 0.11, 0.3):
        first = next(n for n in range(2, 10_000) if power_of(n, sd, 0.1) >= 0.8)
        assert seeds_needed(sd, 0.1) == first
    assert seeds_needed(1e-17, 0.1) == 2
    with pytest.raises(ValueError, match="sd = 0"):
        seeds_needed(0.0, 0.1)
    with pytest.raises(ValueError, match="million"):
        seeds_needed(1e3, 0.1)


@pytest.mark.parametrize(
    ("paper", "low", "high", "expected"),
    [
        (-0.027, -0.05, -0.01, "replicated"),
        (-0.027, -0.30, -0.20, "replicated"),
        (-0.027, 0.01, 0.05, "contradicted"),
        (-0.027, -0.01, 0.01, "contradicted"),
        (-0.027, -0.05, 0.02, "underpowered"),
        (-0.027, math.nan, math.nan, "underpowered"),
        (0.057, 0.03, 0.05, "replicated"),
        (math.nan, 0.01, 0.02, "replicated"),
        (math.nan, -0.01, 0.02, "underpowered"),
    ],
)
def test_verdicts(paper: float, low: float, high: float, expected: str) -> None:
    assert verdict(paper, 0.0, low, high) == expected


@pytest.mark.parametrize(
    ("seeds", "expected"),
    [
        (1, "too few seeds for an interval; 1 of 1 seeds below 0 (paper: 38 of 61)"),
        (3, "with 3 seeds a description; the paper's size is outside the interval; 3 of 3 seeds below 0"),
        (6, "the paper's size is outside the interval; 6 of 6 seeds below 0 (paper: 38 of 61)"),
    ],
)
def test_notes_of_a_verdict(seeds: int, expected: str) -> None:
    """Without an interval the paper's size is not outside of it; few seeds describe (eval.statistics)."""
    rows = [row | {"criterion": "aggregated"} for row in study_rows(gap=-0.5, seeds=seeds)]
    judged = {row["claim"]: row for row in verdict_rows(summarise(rows))}
    gap = next(row for claim, row in judged.items() if "aggregated tail" in claim)
    assert gap["note"].startswith(expected) and (gap["verdict"] == "underpowered") == (seeds == 1)


def study_rows(gap: float, seeds: int = 40, shuffle: bool = False) -> list[dict]:
    """Runs of 800 tokens outside: D rises with probability .6, on what only the prediction keeps with .6 + gap."""
    rows = []
    for seed in range(seeds):
        random = np.random.default_rng([seed, int(shuffle)])
        ratio = random.random(800) < 0.5
        outward = ratio ^ (random.random(800) < 0.15)
        rises = random.random(800) < np.where(~outward & ratio, 0.6 + gap, 0.6)
        if shuffle:
            # Directions of other tokens: the labels carry nothing about the change.
            outward = random.permutation(outward)
        row = rates(np.full(800, True), outward, ratio, np.where(rises, 1.0, -1.0)).row()
        key = {
            "panel": "made",
            "update": "unmasked",
            "label": "x",
            "seed": seed,
            "measure": "forward_kl",
            "delta": 0.15,
        }
        rows.append(
            key
            | {
                "truth": "reduced",
                "criterion": "made",
                "subset": "all",
                "active": 800,
                "decided_share": 0.9,
                "top_mass": 0.99,
            }
            | row
        )
    return rows


def test_a_planted_gap_is_found() -> None:
    (row,) = summarise(study_rows(gap=-0.1))
    assert row["gap_high"] < 0 and row["gap_low"] < -0.1 < row["gap_high"]
    assert max(row["p_sign"], row["p_flip"], row["p_relabel"]) < 0.01 and row["n_used"] == 40


def test_no_gap_and_shuffled_directions_cover_zero() -> None:
    for rows in (study_rows(gap=0.0), study_rows(gap=0.0, shuffle=True)):
        (row,) = summarise(rows)
        assert row["gap_low"] < 0 < row["gap_high"]
        assert min(row["p_flip"], row["p_relabel"]) > 0.05


def test_intervals_cover_as_often_as_they_say() -> None:
    """40 studies without a gap: the 95 % interval misses 0 in about two of them, never in a quarter."""
    missed = 0
    for study in range(40):
        random = np.random.default_rng(study)
        gaps = random.normal(0.0, 0.1, size=20)
        from eval.statistics import bootstrap_mean

        interval = bootstrap_mean(list(gaps), np.random.default_rng(0), resamples=2_000)
        missed += not interval.low < 0 < interval.high
    assert missed <= 6


def test_tokens_are_not_the_unit() -> None:
    """Doubling every seed's tokens leaves the mean gap and its interval as they are."""
    rows = study_rows(gap=-0.05, seeds=10)
    doubled = [{**row, **{k: 2 * row[k] for k in ("kept", "kept_ratio", "unsafe", "unsafe_ratio")}} for row in rows]
    (one,), (other,) = summarise(rows), summarise(doubled)
    assert (one["gap"], one["gap_low"], one["gap_high"]) == (other["gap"], other["gap_low"], other["gap_high"])
