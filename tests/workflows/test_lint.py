"""workflow: the gate of the workflow's lints. Does not cover which lints Snakemake knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from workflows.tools import lint

RULE = 'rule made:\n    output:\n        "{name}.txt",\n    shell:\n        "touch {{output}}"\n'


def test_a_lint_that_is_not_accepted_and_one_that_is_gone_are_told() -> None:
    accepted = {("x", "No log"): "why"}
    assert lint.judge({("x", "No log")}, accepted) == []
    assert lint.judge({("x", "No log"), ("y", "No log")}, accepted) == ["y: No log"]
    assert lint.judge(set(), accepted) == ["x: No log: accepted, but no longer there"]
    everywhere = {("*", "No log"): "why"}
    assert lint.judge({("x", "No log"), ("y", "No log")}, everywhere) == []
    assert lint.judge(set(), everywhere) == ["*: No log: accepted, but no longer there"]
    assert all(reason for reason in lint.ACCEPTED.values())


def test_a_real_report_is_read_and_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A rule without a log, as Snakemake itself reports it."""
    (tmp_path / "Snakefile").write_text(RULE.format(name="a"))
    (tmp_path / "config.yaml").write_text("tier: x\n")
    monkeypatch.chdir(tmp_path)
    assert lint.check(["config.yaml"]) == 1
    said = capsys.readouterr()
    assert "lint: made: No log directive defined" in said.err and "not accepted: " in said.out


def test_without_a_report_there_is_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Snakefile").write_text("rule:\n  nonsense\n")
    (tmp_path / "config.yaml").write_text("tier: x\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SyntaxError):
        lint.check(["config.yaml"])
