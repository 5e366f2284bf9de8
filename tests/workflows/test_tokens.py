"""workflow: `snakemake tokens` from nothing to the page, what a second run does, and what one lost record costs.

The tier is one of a user's own model, as the tier real is. Does not cover the numbers (tests/eval), nor that a record
made again or interrupted is the same to the byte (tests/backend). The tests share one run.
"""

from __future__ import annotations

import copy
import csv
from pathlib import Path
from typing import Any

import pytest

from tiny_project import CONFIG, Project, own_model

FIGURES = ("unsafe_keep", "changes", "k", "parts", "mismatch")
TABLES = ("seeds", "summary", "sweep", "causes", "changes")


@pytest.fixture(scope="module")
def tokens(tiny_world: Any, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A tiny project after `snakemake tokens`: a model made before, the unmasked probe, two seeds; no main grid."""
    config = copy.deepcopy(CONFIG)
    own_model(config, tiny_world)
    config["settings"]["T"] |= {"lr": 5.0e-3, "steps": 4, "staleness": 2, "group": 8}
    config["settings"]["T"]["tokens"] = {"update": "unmasked", "every": 1, "floor": 0.0, "share": 0.3, "ks": [1, 5]}
    config |= {
        "worlds": {},
        "models": {},
        "grid": [],
        "token_grid": [{"settings": ["T"], "methods": ["dppo_topk_kl"], "seeds": [0, 1]}],
    }
    config["mismatch"] = {"prompts": 4, "samples": 2}
    made = Project.copied(tmp_path_factory.mktemp("tokens"))
    made.write_config(config)
    (made.root / "output.txt").write_text(made.snakemake("tokens"))
    return made


def record(project: Project, seed: int) -> Path:
    return project.results / "tokens" / project.run_config("dppo_topk_kl", seed) / "tokens.parquet"


def test_a_run_ends_with_records_tables_figures_verdicts_and_page(tokens: Project) -> None:
    assert all(record(tokens, seed).stat().st_size for seed in (0, 1))
    for name in TABLES:
        with (tokens.results / "tables" / f"tokens_{name}.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert rows and {row["setting"] for row in rows} == {"T"}, name
    with (tokens.results / "verdicts" / "tokens.csv").open() as file:
        verdicts = list(csv.DictReader(file))
    assert {row["setting"] for row in verdicts} == {"setting T, unmasked update"}
    page = (tokens.results / "tokens.html").read_text()
    drawn = {path.stem.removeprefix("token_"): path for path in (tokens.results / "figures").glob("token_*.svg")}
    assert set(FIGURES) <= set(drawn) and all("</svg>" in path.read_text() for path in drawn.values())
    assert page.count("<figure>") == len(drawn) and "prompts listed under settings" in page
    for row in verdicts:
        assert f'class="verdict {row["verdict"].replace(" ", "-")}"' in page
    assert not (tokens.results / "runs").exists(), "the main grid is another target"


def test_the_time_of_the_runs_is_told(tokens: Project) -> None:
    with (tokens.results / "timings" / "tokens.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert (row["setting"], row["jobs"]) == ("T", "2") and float(row["wall_s"]) > 0
    assert "[tokens] 2 runs of one thread, " in (tokens.root / "output.txt").read_text()


def test_nothing_is_to_be_done_afterwards(tokens: Project) -> None:
    assert tokens.planned("tokens") == {}


def test_a_lost_record_is_missed_and_made_again_alone(tokens: Project) -> None:
    """Although the tables are there; of the two records only the lost one is planned."""
    lost, aside = record(tokens, 1), tokens.root / "aside.parquet"
    lost.rename(aside)
    assert tokens.planned("tokens", "--until", "record") == {"record": 1}
    aside.rename(lost)
