"""Definition tests of the token study's rates and tests, on tables small enough to work by hand; honesty tests on
made-up runs: a planted gap is found, and labels without information give a gap whose interval covers 0.

Does not cover real records (tests/backend/test_token_records.py).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

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
from eval.tokens.verdicts import CLAIMS, Claim, verdict
from eval.tokens.verdicts import rows as verdict_rows


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
    """9 of 10: two-sided p = 2 (1 + 10) / 1024; the paper's 38 of 61 gives 0.072."""
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


GAP = next(claim for claim in CLAIMS if claim.column == "gap" and not math.isnan(claim.paper))
SHARE = next(claim for claim in CLAIMS if claim.is_share)
OWN = next(claim for claim in CLAIMS if claim.column == "accuracy_gain")


@pytest.mark.parametrize(
    ("claim", "low", "high", "n", "expected"),
    [
        (GAP, -0.05, -0.01, 61, "replicated"),
        (GAP, -0.40, -0.29, 61, "direction only"),  # 13 times the paper's
        (GAP, -0.003, -0.001, 61, "direction only"),  # a thirteenth of it
        (GAP, 0.01, 0.05, 61, "contradicted"),
        (GAP, -0.01, 0.01, 61, "contradicted"),  # within half of the paper's effect
        (GAP, -0.014, 0.014, 61, "contradicted"),  # and so is the 90 % interval here, at 0.0117
        (GAP, -0.018, 0.018, 61, "underpowered"),
        (GAP, -0.05, 0.02, 61, "underpowered"),
        (GAP, -0.05, -0.01, 5, "not testable"),
        (GAP, math.nan, math.nan, 61, "not testable"),
        (SHARE, 0.045, 0.051, 61, "replicated"),
        (SHARE, 0.03, 0.05, 61, "underpowered"),
        (SHARE, 0.01, 0.02, 61, "contradicted"),
        (SHARE, 0.001, 0.3, 61, "underpowered"),
        (OWN, 0.01, 0.02, 61, "supported"),
        (OWN, 0.001, 0.002, 61, "open"),
        (OWN, -0.01, 0.02, 61, "open"),
        (OWN, -0.001, 0.001, 61, "not supported"),
        (OWN, -0.02, -0.01, 61, "not supported"),
        (OWN, 0.01, 0.02, 3, "not testable"),
    ],
)
def test_verdicts(claim: Claim, low: float, high: float, n: int, expected: str) -> None:
    """definition: each word at an interval made for it; the value is its middle."""
    assert verdict(claim, (low + high) / 2, low, high, n) == expected


def test_a_mirrored_claim_has_the_same_verdict() -> None:
    """property: turning claim and interval around changes no word."""
    random = np.random.default_rng(0)
    mirrored = replace(GAP, side=1, paper=-GAP.paper)
    for _ in range(500):
        middle, half = random.normal(scale=0.03), random.exponential(0.02)
        one = verdict(GAP, middle, middle - half, middle + half, 20)
        assert one == verdict(mirrored, -middle, -middle - half, -middle + half, 20)


def test_more_seeds_never_turn_a_contradiction_into_a_replication() -> None:
    """property: at a fixed mean and spread, after `replicated` comes no other word, and no `contradicted` before."""
    for mean in np.linspace(-0.08, 0.03, 45):
        words = []
        for n in (6, 10, 20, 61, 160, 500, 4000):
            half = stats.t.ppf(0.975, n - 1) * 0.1 / math.sqrt(n)
            words.append(verdict(GAP, mean, mean - half, mean + half, n))
        if "replicated" in words:
            assert "contradicted" not in words and set(words[words.index("replicated") :]) == {"replicated"}


def test_no_claim_of_the_paper_carries_none_of_its_numbers() -> None:
    """Only marks of the paper (F, S) have its value; inferred and own rows have words of their own."""
    assert all(math.isnan(claim.paper) == (claim.mark in ("I", "N")) for claim in CLAIMS)


@pytest.mark.parametrize(
    ("seeds", "expected"),
    [
        (1, "1 seed: not a test of a rate, which takes 6; "),
        (3, "3 seeds: not a test of a rate, which takes 6; 20 times"),
        (6, "20 times"),
    ],
)
def test_notes_of_a_verdict(seeds: int, expected: str) -> None:
    """Below six seeds no word; the size beside the paper's; seeds below 0 with the exact interval of their rate."""
    rows = [row | {"criterion": "aggregated"} for row in study_rows(gap=-0.5, seeds=seeds)]
    judged = {row["claim"]: row for row in verdict_rows(summarise(rows))}
    gap = next(row for claim, row in judged.items() if "aggregated tail" in claim)
    assert gap["note"].startswith(expected) and " times the paper's size; " in gap["note"]
    assert f"{seeds} of {seeds} seeds below 0 [" in gap["note"]
    assert gap["verdict"] == ("not testable" if seeds < 6 else "direction only")


def test_an_open_verdict_says_how_many_seeds_it_takes() -> None:
    """From the upper 80 % bound of the spread: more than the point estimate says, and a number of seeds."""
    rows = [row | {"criterion": "aggregated"} for row in study_rows(gap=-0.02, seeds=8)]
    (means,) = summarise(rows)
    (gap,) = (row for row in verdict_rows([means]) if "aggregated tail" in row["claim"])
    assert gap["verdict"] == "underpowered"
    needed = int(gap["note"].split(" seeds would tell an effect of 0.0135")[0].rpartition(" ")[2])
    assert needed > seeds_needed(means["gap_sd"], 0.0135)


def study_rows(gap: float, seeds: int = 40, shuffle: bool = False) -> list[dict]:
    """Runs of 800 tokens outside: D rises with probability 0.6, on what only the prediction keeps with 0.6 + gap."""
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
            "setting": "made",
            "update": "unmasked",
            "variant": "x",
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
        from eval.statistics import mean_interval

        interval = mean_interval(list(gaps), np.random.default_rng(0), resamples=2_000)
        missed += not interval.low < 0 < interval.high
    assert missed <= 6


def test_tokens_are_not_the_unit() -> None:
    """Doubling every seed's tokens leaves the mean gap and its interval as they are."""
    rows = study_rows(gap=-0.05, seeds=10)
    doubled = [{**row, **{k: 2 * row[k] for k in ("kept", "kept_ratio", "unsafe", "unsafe_ratio")}} for row in rows]
    (one,), (other,) = summarise(rows), summarise(doubled)
    assert (one["gap"], one["gap_low"], one["gap_high"]) == (other["gap"], other["gap_low"], other["gap_high"])
