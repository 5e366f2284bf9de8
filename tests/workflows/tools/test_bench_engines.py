"""workflow: the table of engines, runners and precisions holds what can be trained, and says why the rest cannot.

Not covered: the measurements themselves, which take minutes; `python -m workflows bench --engines` runs them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from workflows.tools.bench import engines
from workflows.tools.bench.engine_table import DEFAULT, PRECISIONS, REFUSED, RUNNERS, Row, make_run, refusals, render

CELLS = [(e, runner, p) for e, precisions in PRECISIONS.items() for runner in RUNNERS for p in precisions]


@pytest.mark.parametrize(("engine", "runner", "precision"), CELLS)
def test_every_row_is_a_run_that_can_be_trained(engine: str, runner: str, precision: str, tmp_path: Path) -> None:
    setting = make_run(tmp_path, "name", engine, runner, precision, steps=3).setting
    assert (
        setting.rollout_engine == engine
        and (setting.runner, setting.server)
        == {
            "in process": ("inprocess", False),
            "ray": ("ray", False),
            "ray, server": ("ray", True),
        }[runner]
    )


def test_what_is_left_out_is_refused_and_says_why() -> None:
    reasons = refusals()
    assert len(reasons) == len(REFUSED) and all(reason.startswith("setting.") for reason in reasons)


def test_the_tables_hold_every_row_and_the_ratios_are_of_the_default() -> None:
    stages = {"imports": 4.0, "engines": 1.0, "first step": 1.0}
    rows = [Row(e, r, p, 0.5, 1e-3, 1e-5, stages) for e, r, p in CELLS]
    rows = [row if row.engine == "hf" else Row(**{**vars(row), "step": 1.0}) for row in rows]
    text = render(rows)
    assert text.count("| 1.00 | 2.00 | 1.0e-03 | 1.0e-05 |") == len(RUNNERS) * len(PRECISIONS["vllm"])
    assert text.count("| 6.0 |") == len(RUNNERS) * len(PRECISIONS)
    assert f"start-up ({DEFAULT})" in text and "vLLM costs 2.00 of one with hf" in text


def test_a_training_that_fails_is_reported_with_its_last_lines(tmp_path: Path) -> None:
    usage = engines.Usage()
    command = ["python", "-c", "import sys; sys.exit('no such luck')"]
    with (
        pytest.raises(RuntimeError, match="no such luck"),
        engines.watch_command(command, tmp_path / "log", usage) as ticks,
    ):
        for _ in ticks:
            pass
