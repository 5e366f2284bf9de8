"""What `status` says, from invented files in the layout of real runs (tests/fabricated.py). No training."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fabricated import write_run

from workflows.__main__ import main
from workflows.run_states import is_held, look

ROOT = Path(__file__).resolve().parents[2]
PLACES = [f"setting~B/variant~pg_is/seed~{seed}" for seed in range(5)]


def _work(results: Path, place: str, steps: int) -> Path:
    """A work folder after `steps` of 10 steps of 2 s, with half a line at the end as a kill leaves it."""
    work = results / "work" / place
    work.mkdir(parents=True)
    (work / "run.json").write_text(json.dumps({"settings": {"setting": {"steps": 10}}}))
    rows = [json.dumps({"step": step, "data": {"reward/mean": 0.1 * step}}) for step in range(steps + 1)]
    (work / "metrics.jsonl").write_text("\n".join([*rows, '{"step": 9, "da']))
    walls = [json.dumps({"step": step, "data": {"wall_s": 2.0}}) for step in range(steps + 1)]
    (work / "timing.jsonl").write_text("\n".join(walls))
    return work


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Seed 0 done, 1 with a work folder whose lock nobody holds, 2 failed by its log, 3 stopped, 4 not begun."""
    root = tmp_path / "made"
    write_run(root, "B", "pg_is", 0, 0.5)
    for seed in (1, 2, 3):
        work = _work(root, PLACES[seed], 3 + seed)
        log = root / "logs" / "train" / f"{PLACES[seed]}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("step 3\rstep 4\n" + ("error: metric loss = nan at step 5\n" if seed == 2 else ""))
        work.with_name(work.name + ".lock").write_text("1")
    return root


def test_each_run_is_in_the_state_that_its_files_say(results: Path) -> None:
    lock = results / "work" / f"{PLACES[1]}.lock"
    with lock.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        states = look(results, PLACES)
    assert [state.state for state in states] == ["done", "running", "failed", "stopped", "waiting"]
    assert states[1].step == 4 and states[1].steps == 10 and states[1].left_seconds == pytest.approx(12.0)
    assert states[1].reward == pytest.approx(0.4)
    assert states[2].cause == "error: metric loss = nan at step 5"
    # After a kill the lock's file is there and held by no one.
    assert look(results, PLACES)[1].state == "stopped"


def test_asking_disturbs_no_holder(results: Path) -> None:
    """Not covered: a training that takes the lock in the moment of asking; it waits half a second."""
    lock = results / "work" / f"{PLACES[1]}.lock"
    before = lock.stat().st_mtime_ns, lock.read_text()
    assert not is_held(lock) and not is_held(lock.with_name("none.lock")) and not lock.with_name("none.lock").exists()
    with lock.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert is_held(lock)
        with lock.open("a+") as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with lock.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert (lock.stat().st_mtime_ns, lock.read_text()) == before


def test_one_screen_from_another_terminal(results: Path) -> None:
    """Another process sees a training at work, where its log is, and how long it takes; it loads no torch."""
    lock = results / "work" / f"{PLACES[1]}.lock"
    code = (
        "import sys; from workflows.__main__ import main; code = main(sys.argv[1:]); "
        "sys.exit(code or 9 * any(name in sys.modules for name in ('torch', 'verl')))"
    )
    with lock.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        found = subprocess.run(
            [sys.executable, "-c", code, "status", "--results", str(results)],
            cwd=ROOT,
            env={**os.environ, "COLUMNS": "120"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert found.returncode == 0, found.stderr
    said = found.stdout
    assert "4 runs: 1 done, 1 running, 1 failed, 1 stopped, 0 waiting; about 30 s of training left" in said
    assert "B  pg_is  1 done, 1 running, 1 failed, 1 stopped, last reward 0.540 (mean of 1 done)" in said
    assert (
        f"running: B pg_is seed 1, step 4 of 10, reward 0.400, 12 s left  [{results}/logs/train/{PLACES[1]}.log]"
        in said
    )
    assert len(said.splitlines()) <= 24


def test_the_runs_of_a_tier_are_those_of_its_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run of the folder that the grid does not have is counted apart."""
    config = ROOT / "workflows" / "config" / "toy.yaml"
    (tmp_path / "toy.yaml").write_text(config.read_text())
    monkeypatch.chdir(tmp_path)
    write_run(Path("results/toy"), "B", "pg_is", 0, 0.5)
    write_run(Path("results/toy"), "B", "gone", 0, 0.5)
    assert main(["status", "--tier", "toy.yaml"]) == 0
    said = capsys.readouterr().out
    assert "results/toy: 21 runs: 1 done, 0 running, 20 waiting" in said and "1 runs in results/toy" in said
    assert main(["status", "--tier", "none"]) == 2
