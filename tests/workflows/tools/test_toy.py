"""workflow: measurements make their toy runs in one place. Not covered: the measurements."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from methods.backend.setting import ConfigError
from tiny_project import ROOT
from workflows.tools.bench.step import SIZES
from workflows.tools.mismatch.policies import Settings
from workflows.tools.soak_training import RUNNERS, SAVE_EVERY, Training
from workflows.tools.toy import TOY_REWARD, toy_run
from workflows.world import REWARD


def test_a_toy_run_lies_below_its_folder_and_is_checked(tmp_path: Path) -> None:
    run = toy_run(tmp_path, "mine", {**SIZES, "lr": 1e-3, "steps": 2}, seed=3)
    assert (run.output, run.model, run.seed) == (str(tmp_path / "mine"), str(tmp_path / "model"), 3)
    assert run.work_dir == tmp_path / "mine.work"
    with pytest.raises(ConfigError, match="steps = 0"):
        toy_run(tmp_path, "mine", {**SIZES, "lr": 1e-3, "steps": 0})


def test_the_toy_reward_is_named_once() -> None:
    assert TOY_REWARD.is_file() and TOY_REWARD.samefile(ROOT / REWARD) and Settings(Path(), Path()).reward == TOY_REWARD
    spelled = re.compile(r'world["/ ]+reward\.py')
    named = [path for path in (ROOT / "workflows").rglob("*.py") if spelled.search(path.read_text())]
    assert named == [ROOT / "workflows" / "world" / "__init__.py"]


@pytest.mark.parametrize("runner", RUNNERS)
def test_the_training_that_is_killed_writes_where_it_is_watched(runner: str, tmp_path: Path) -> None:
    training = Training(tmp_path, "killed", 7, runner)
    told = json.loads(training._command[-1])
    assert (told["setting"]["steps"], told["setting"]["save_every"]) == (7, SAVE_EVERY)
    run = toy_run(tmp_path, "killed", told["setting"])
    assert run.work_dir == training.work and Path(run.output) == training.output
