"""Two runs, variants or settings against each other, on invented results (tests/fabricated.py)."""

from __future__ import annotations

from pathlib import Path

import pytest
from fabricated import write_results, write_run

from eval.__main__ import main


@pytest.fixture
def made(tmp_path: Path) -> Path:
    return write_results(tmp_path / "made")


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["compare", *arguments]) == 0
    return capsys.readouterr().out


def test_variants_are_paired_by_seed(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = made / "runs" / "setting~A"
    said = told(capsys, f"{runs}/variant~drpo_0.15", f"{runs}/variant~pg_is")
    assert "method  a: drpo  b: pg_is\n" in said
    # Differences 0.1, 0.101, 0.102: mean 0.101, t(2) = 4.303 times 0.001 / sqrt(3).
    assert "paired difference +0.101 [+0.09852, +0.1035], 95% over 3 seeds, told apart from 0, a larger in 3" in said


def test_two_seeds_are_their_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in range(2):
        write_run(tmp_path, "A", "pg_is", seed, 0.5)
        write_run(tmp_path, "A", "drpo", seed, 0.6 + 0.1 * seed)
    said = told(capsys, f"{tmp_path}/runs/setting~A/variant~drpo", f"{tmp_path}/runs/setting~A/variant~pg_is")
    assert "(+0.1, +0.2; 2 seeds: not a test)" in said


def test_single_runs_are_paired_by_problem_too(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = made / "runs" / "setting~A"
    said = told(capsys, f"{runs}/variant~drpo_0.15/seed~0", f"{runs}/variant~pg_is/seed~0")
    assert "1 run each: not a test" in said and "other seeds" not in said
    assert "of other seeds" in told(capsys, f"{runs}/variant~drpo_0.15/seed~0", f"{runs}/variant~pg_is/seed~1")
    # 12 against 10 of 20 problems: 2 of 20 differ.
    assert "by problem" in said and "+0.1 [" in said and "over 20 problems" in said


def test_settings_are_compared_by_variant(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = told(capsys, f"{made}/runs/setting~B", f"{made}/runs/setting~A", "--metric", "reward/mean")
    assert "setting.staleness  a: 2  b: 0" in said and "note: run means of another staleness" in said
    assert "reward/mean, pg_is:" in said and "reward/mean, drpo_0.15:" in said


def test_what_cannot_be_compared_is_named(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = f"{made}/runs/setting~A/variant~pg_is"
    for arguments, message in (
        ((run, f"{made}/runs"), "allowed is a run (.../seed~0)"),
        ((run, f"{made}/runs/setting~A/variant~none"), "no finished run there"),
        ((run, run, "--metric", "grad"), "--metric = 'grad':"),
    ):
        assert main(["compare", *arguments]) == 2
        assert message in capsys.readouterr().err
