"""Claim: the numbers that README and docs quote of setting B are those of the committed tables.

Computed again from the rows of single seeds in `results/reference/toy/tables`, which keep the columns of the version
that made them (`panel`, `method`). Not covered: numbers inside sentences, but for the equivalences; other tiers.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from eval.statistics import mean_interval

ROOT = Path(__file__).resolve().parents[2]
TABLES = ROOT / "results" / "reference" / "toy" / "tables"
REFERENCE, STALENESS = "dppo_topk_kl", 16
TITLES = {
    "PG-IS (no trust region)": "pg_is",
    "PPO/GRPO clip-higher": "ppo_clip_higher",
    "DPPO Top-K KL": REFERENCE,
    "predictive mask, aggregated tail": "predictive_aggregated",
    "predictive mask, uniform tail": "predictive_uniform",
    "DRPO, delta 0.15": "drpo_0.15",
    "DRPO, delta 12.5": "drpo_12.5",
}


@pytest.fixture(scope="module")
def rewards() -> pd.DataFrame:
    """Run reward: a row a seed, a column a method."""
    rows = pd.read_csv(TABLES / "curves.csv")
    late = rows[(rows.metric == "reward/mean") & (rows.step > STALENESS)]
    return late.groupby(["seed", "method"]).value.mean().unstack()


def interval(values: pd.Series, level: float = 0.95) -> tuple[float, float, float]:
    found = mean_interval(list(values), np.random.default_rng(0), level=level)
    return found.mean, found.low, found.high


@pytest.mark.parametrize("page", ["README.md", "docs/results.md"])
def test_the_table_of_setting_b(rewards: pd.DataFrame, page: str) -> None:
    text = (ROOT / page).read_text()
    finals = pd.read_csv(TABLES / "summary.csv").set_index("method").final
    for title, method in TITLES.items():
        mean, low, high = interval(rewards[method] - rewards[REFERENCE])
        difference = "" if method == REFERENCE else f"{mean:+.3f} [{low:+.3f}, {high:+.3f}]"
        # A minus says which side an interval lies on; a plus is written where 0 is inside.
        difference = difference if low < 0 < high else difference.replace("[+", "[").replace(", +", ", ")
        row = f"| {title} | {finals[method]:.3f} | {rewards[method].mean():.3f} | {difference}".rstrip()
        (said,) = re.findall(rf"^{re.escape(f'| {title} |')}.*", text, re.MULTILINE)
        assert said.removesuffix("|").rstrip() == row


@pytest.mark.parametrize(
    ("one", "other", "within"),
    [
        ("predictive_aggregated", REFERENCE, 0.003),
        ("predictive_uniform", REFERENCE, 0.0055),
        ("drpo_12.5", "pg_is", 0.008),
    ],
)
def test_what_is_called_equal_is_equal_within_its_margin(
    rewards: pd.DataFrame, one: str, other: str, within: float
) -> None:
    """Two one-sided tests of 5 %: the 90 % interval lies inside."""
    _, low, high = interval(rewards[one] - rewards[other], level=0.9)
    assert -within < low < high < within
