"""Results as tables and as a figure by name, on invented results (tests/fabricated.py)."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from fabricated import STEPS, write_results

import eval as evaluation
from eval.__main__ import main
from eval.files import InputError
from eval.results import AXES
from methods.backend.run import dependencies

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def made(tmp_path: Path) -> Path:
    return write_results(tmp_path / "made")


def test_a_row_is_a_step_of_a_run_with_its_axes_and_metrics_as_columns(made: Path) -> None:
    """Not covered: a run that is at work, which no table has."""
    frame = evaluation.load(made)
    assert len(frame) == 12 * (STEPS + 1)
    assert list(frame.columns[: len(AXES) + 1]) == [*AXES, "step"]
    assert not frame.duplicated(["setting", "variant", "seed", "step"]).any()
    row = frame[
        (frame["setting"] == "B") & (frame["variant"] == "drpo_0.15") & (frame["seed"] == 1) & (frame["step"] == STEPS)
    ].iloc[0]
    assert (row["size"], row["task"], row["method"], row["staleness"]) == ("s", "sort_6_200", "drpo", 2)
    assert row["reward/mean"] == pytest.approx(0.651 + 0.04) and row["avg@4"] == pytest.approx(0.65)
    # The setting's learning rate and the step's are two columns.
    assert (row["learning_rate"], row["lr"]) == (0.0002, pytest.approx(0.0004))


def test_an_axis_makes_a_contrast_across_settings(made: Path) -> None:
    runs = evaluation.outcomes(made)
    assert len(runs) == 12 and set(runs["final_step"]) == {STEPS}
    means = runs.groupby(["staleness", "variant"])["reward"].mean()
    # Staleness 2 leaves out the first two steps: 0.025 becomes 0.035 above the start.
    assert means[2, "pg_is"] - means[0, "pg_is"] == pytest.approx(0.01)


def test_a_folder_without_finished_runs_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder; allowed is a tier's folder"):
        evaluation.load(tmp_path / "nowhere")
    with pytest.raises(InputError, match="no finished run"):
        evaluation.load(tmp_path)


def test_the_room_is_imported_without_tables() -> None:
    """`import eval` stays light: every module of the room goes through it."""
    code = "import sys, eval; sys.exit(any(name in sys.modules for name in ('pandas', 'numpy', 'torch')))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_no_job_is_made_of_the_tables() -> None:
    """Else a change of `eval.results` would score every checkpoint again."""
    files = {path.name for path in dependencies.program_files("eval.score", "eval.tables")}
    assert "score.py" in files and "results.py" not in files


def test_any_metric_is_drawn_by_its_name(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not covered: how it looks."""
    output = tmp_path / "lr.svg"
    assert main(["plot", str(made), "lr", "--output", str(output)]) == 0
    first = output.read_bytes()
    assert b"From 12 finished runs" in first
    assert main(["plot", str(made), "lr", "--output", str(output)]) == 0 and output.read_bytes() == first
    assert main(["plot", str(made), "nothing", "--output", str(output)]) == 2
    assert "METRIC = 'nothing': no run of" in capsys.readouterr().err


def test_the_example_runs(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["analyse.py", str(made), str(tmp_path / "out")])
    found = runpy.run_path(str(ROOT / "examples" / "analyse.py"), run_name="__main__")
    assert len(found["runs"]) == 12 and (tmp_path / "out" / "reward.svg").stat().st_size > 1000
