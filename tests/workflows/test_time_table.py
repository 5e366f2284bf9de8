"""Definition tests of the time tables, on benchmark files written by hand.

Does not cover what Snakemake measures.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from workflows.scripts.time_table import collect, summarise

HEAD = "s\th:m:s\tmax_rss\n"


@pytest.fixture
def timings(tmp_path: Path) -> Path:
    """Two runs in setting A, one in B, of which one ended before it was sampled; one job of another stage."""
    files = {
        "record/setting~A/variant~x/seed~0.tsv": "60.0\t0:01:00\t2048.0\n",
        "record/setting~A/variant~x/seed~1.tsv": "30.0\t0:00:30\t1024.0\n",
        "record/setting~B/variant~x/seed~0.tsv": "0.2\t0:00:00\tNA\n",
        "mismatch.tsv": "5.0\t0:00:05\t100.0\n",
    }
    for name, row in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(HEAD + row)
    return tmp_path


def listed(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.tsv"))


def test_stages_are_summed(timings: Path) -> None:
    table = collect(timings, listed(timings), "stage").set_index("stage")
    assert table["jobs"].to_dict() == {"mismatch": 1, "record": 3}
    assert table["wall_s"].to_dict() == {"mismatch": 5.0, "record": 90.2}


def test_runs_are_summed_per_setting_and_told_in_a_line(timings: Path) -> None:
    table = collect(timings / "record", listed(timings / "record"), "setting")
    assert table["setting"].tolist() == ["A", "B"] and table["wall_s_per_job"].tolist() == [45.0, 0.2]
    assert table["memory_mb"].tolist()[0] == 2048.0
    assert summarise(table) == "3 runs of one thread, 1.5 minutes of wall time together, at most 2.0 GB each"


def test_a_folder_without_timings_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="none of the 1 benchmark files"):
        collect(tmp_path, [tmp_path / "derive.tsv"], "stage")


def test_a_method_that_left_the_grid_does_not_count(timings: Path) -> None:
    """Its files stay in the folder; and a job of the grid whose file is lost is no error."""
    grid = [path for path in listed(timings) if "seed~1" not in path.name] + [timings / "derive.tsv"]
    table = collect(timings, grid, "stage").set_index("stage")
    assert table["jobs"].to_dict() == {"mismatch": 1, "record": 2} and table["wall_s"]["record"] == 60.2
