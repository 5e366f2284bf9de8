"""Outcomes of runs: dates by version, collapse, dip. Not covered: that verl records the version it sampled with."""

from __future__ import annotations

import pytest

from eval.claims.outcomes import (
    SAMPLED,
    SYNCED,
    NotTestable,
    Record,
    falls,
    outcome,
    record,
    same_versions,
    smoothed,
)
from eval.tables import REWARD


def steps(rewards: list[float], staleness: int = 0) -> dict[int, dict[str, float]]:
    return {
        step: {REWARD: reward, SAMPLED: float(max(0, step - 1 - staleness)), SYNCED: float(step - 1)}
        for step, reward in enumerate(rewards, start=1)
    }


def of(values: list[float]) -> Record:
    return Record(dict(enumerate(values)))


def test_the_reward_is_dated_by_the_version_that_sampled_it() -> None:
    """Staleness 2: steps 1 to 3 sample the start, step 4 version 1; versions 4 and 5 are scored by no step."""
    found = record(steps([0.1, 0.2, 0.3, 0.5, 0.6, 0.7], staleness=2))
    assert found.rewards == pytest.approx({0: 0.2, 1: 0.5, 2: 0.6, 3: 0.7})
    assert outcome(found, "reward") == pytest.approx(0.6)
    assert found.coverage == "versions 1 to 3 scored, 5 synced"


def test_a_tail_that_is_run_out_counts() -> None:
    """Two more batches without an update: the fall that the last updates made is seen."""
    early = record(steps([0.5] * 8, staleness=2))
    data = steps([0.5] * 8, staleness=2) | {
        9: {REWARD: 0.1, SAMPLED: 6.0, SYNCED: 8.0},
        10: {REWARD: 0.1, SAMPLED: 7.0, SYNCED: 8.0},
    }
    assert outcome(record(data), "reward") < outcome(early, "reward")
    with pytest.raises(NotTestable, match="different weights: versions 1 to 5 .*; versions 1 to 7"):
        same_versions([early, record(data)])


def test_runs_of_other_staleness_are_not_compared() -> None:
    with pytest.raises(NotTestable, match="different weights"):
        same_versions([record(steps([0.5] * 9, staleness)) for staleness in (0, 3)])


def test_runs_with_a_hole_are_not_compared_with_whole_ones() -> None:
    """The first and last version agree; one between is missing."""
    whole = of([0.5] * 6)
    hole = Record({version: reward for version, reward in whole.rewards.items() if version != 3})
    with pytest.raises(NotTestable, match="different weights"):
        same_versions([whole, hole])


def test_s_is_the_mean_of_five_versions() -> None:
    assert smoothed(of([0, 0, 0, 0, 5, 5]).rewards) == {4: 1.0, 5: 2.0}


@pytest.mark.parametrize(
    ("after", "collapse", "dip"),
    [
        ([0.4] * 40, None, False),
        ([0.4] * 10 + [0.0] * 20, 13, False),  # s falls to 0.16 with the third 0: versions 11, 12, 13
        ([0.4] * 10 + [0.0] * 5, 13, False),  # to the end, however short
        ([0.4] * 10 + [0.0] * 5 + [0.4] * 20, None, True),
        ([0.4] * 10 + [0.0] * 5 + [0.25] * 20, None, False),  # neither: back to 0.25, not to 0.32
        ([0.4] * 10 + [0.0] * 12 + [0.4] * 20, 13, False),  # ten in a row are a collapse, whatever follows
        ([0.21] * 40, None, False),
        ([0.2] * 40, 5, False),  # half of the start counts as fallen; s is 0.24 at version 4, 0.2 from 5 on
    ],
)
def test_collapse_and_dip(after: list[float], collapse: int | None, dip: bool) -> None:
    found = falls(of([0.4, *after]))
    assert (found.collapse, found.dip) == (collapse, dip)
    assert found.time == (len(after) if collapse is None else collapse)


def test_what_has_no_outcome_says_why() -> None:
    with pytest.raises(NotTestable, match="start 0"):
        falls(of([0.0] * 20))
    with pytest.raises(NotTestable, match="2 versions"):
        falls(of([0.4, 0.4]))
    with pytest.raises(NotTestable, match="2 scored checkpoints"):
        outcome(Record({}, {5: 0.1, 10: 0.2}), "late_score")
    with pytest.raises(NotTestable, match="no version"):
        outcome(of([0.4]), "reward")
    with pytest.raises(NotTestable, match="nan"):
        outcome(of([0.4, float("nan")]), "reward")
    with pytest.raises(NotTestable, match="entropy/mean"):
        outcome(of([0.4]), "metric", "entropy/mean")


def test_late_score_and_drawdown() -> None:
    assert outcome(Record({}, {10: 0.9, 20: 0.1, 30: 0.2, 40: 0.3}), "late_score") == pytest.approx(0.2)
    assert outcome(of([0.5] * 10 + [0.0] * 5 + [0.5] * 10), "drawdown") == pytest.approx(0.5)
