"""workflow: what `make recover` does with the processes of a tier.

Does not cover Ray's helpers, which carry the same mark, nor that the training ended so goes on (test_pipeline).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from workflows.tools.recover import MARK, jobs, recover

# A job as Snakemake starts it: a shell around a program of ours. It ignores a polite end, as a job in a bad state may.
JOB = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(300)"
PARENT = "import subprocess, sys; subprocess.run([sys.executable, *sys.argv[1:]])"


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Any]:
    """Start a job under a process of this name; all are ended afterwards."""
    (tmp_path / "job_of_test.py").write_text(JOB)
    found: list[psutil.Process] = []

    def start(name: str, results: Path) -> subprocess.Popen[bytes]:
        (tmp_path / name).write_text(PARENT)
        environment = {**os.environ, MARK: str(results), "PYTHONPATH": str(tmp_path)}
        # The parent itself has no mark, as Snakemake has none.
        unmarked = f"import os; os.environ[{MARK!r}] = {str(results)!r}; "
        (tmp_path / name).write_text(unmarked + PARENT)
        del environment[MARK]
        command = [sys.executable, str(tmp_path / name), "-m", "job_of_test"]
        process = subprocess.Popen(command, env=environment)
        deadline = time.monotonic() + 60
        while not (made := jobs(results)) and time.monotonic() < deadline:
            time.sleep(0.05)
        found.extend([psutil.Process(process.pid), *made])
        return process

    yield start
    for process in found:
        if process.is_running():
            process.kill()
        process.wait(10)


def test_a_job_left_by_a_killed_snakemake_is_ended_and_told(
    started: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although it ignores SIGTERM; that of another tier is left alone."""
    monkeypatch.setattr("workflows.tools.recover.PATIENCE_SECONDS", 1.0)
    parent, other = started("snakemake", tmp_path / "toy"), started("snakemake", tmp_path / "toy2")
    (job,) = jobs(tmp_path / "toy")
    parent.kill()
    parent.wait()
    assert recover(tmp_path / "toy") == 0
    assert f"python -m job_of_test (process {job.pid})" in capsys.readouterr().out
    assert jobs(tmp_path / "toy") == [] and len(jobs(tmp_path / "toy2")) == 1 and other.poll() is None


def test_nothing_is_ended_while_snakemake_works(
    started: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parent = started("snakemake", tmp_path / "toy")
    assert recover(tmp_path / "toy") == 2
    assert f"Snakemake (process {parent.pid}) is at work" in capsys.readouterr().err
    assert len(jobs(tmp_path / "toy")) == 1


def test_nothing_to_recover_is_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert recover(tmp_path / "toy") == 0 and capsys.readouterr().out == ""
