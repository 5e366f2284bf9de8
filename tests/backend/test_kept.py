"""definition and property: a finished training is kept: published again, gone on from, or trained anew where it must.

Every comparison is with a run that was left alone, byte by byte. Ray's runner takes the same path (launch.train).
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from methods.backend import launch
from methods.backend.run import folder as run_folder
from methods.backend.run import kept, record, restart
from published import contents

SETTINGS = {"steps": 3, "staleness": 1, "warmup_steps": 2}


@pytest.fixture(scope="module")
def start(tiny_world: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run of 3 steps, `run`, and what it has left to go on from."""
    folder = tmp_path_factory.mktemp("kept")
    launch.train(tiny_world.run_config(folder / "run", **SETTINGS))
    return folder


@pytest.fixture
def folder(start: Path, tmp_path: Path) -> Path:
    shutil.copytree(start, tmp_path / "kept")
    return tmp_path / "kept"


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The training steps that are taken."""
    taken: list[int] = []
    write = record.Progress.__call__

    def spy(self: Any, step: int, data: dict[str, float]) -> None:
        taken.append(step)
        write(self, step, data)

    monkeypatch.setattr(record.Progress, "__call__", spy)
    return taken


def test_a_lost_output_is_published_again(folder: Path, tiny_world: Any, steps: list[int]) -> None:
    """As after a workflow that was killed: it removes the outputs it holds for incomplete, and asks again."""
    expected = contents(folder / "run")
    (folder / "run" / "metrics.jsonl").unlink()
    shutil.rmtree(folder / "run" / "checkpoints")
    launch.train(tiny_world.run_config(folder / "run", **SETTINGS))
    assert contents(folder / "run") == expected and not steps
    # Hard links: the exported model is on disk once.
    model = "checkpoints/step_3/model.safetensors"
    assert (folder / "run" / model).stat().st_ino == (folder / "run.work" / model).stat().st_ino


def test_a_changed_result_is_not_taken_up(folder: Path, tiny_world: Any, steps: list[int], capsys: Any) -> None:
    """Planted fault: a digit of the kept metrics, which the published ones share."""
    expected = contents(folder / "run")
    log = folder / "run.work" / "metrics.jsonl"
    log.write_text(log.read_text().replace("1", "2", 1))
    launch.train(tiny_world.run_config(folder / "run", **SETTINGS))
    assert "metrics.jsonl): trained anew" in capsys.readouterr().out and steps == [0, 1, 2, 3]
    assert contents(folder / "run") == expected


@pytest.mark.parametrize("changes", [{"lr": 2e-3}, {"validate_every": 1}, {"seed": 1}, {"steps": 2}])
def test_what_decides_the_bytes_is_trained_anew(
    changes: dict[str, Any], folder: Path, tiny_world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the old result is no longer in the way. The training itself is left out here."""
    monkeypatch.setattr(run_folder, "finished", lambda run: pytest.fail("taken up") if _sealed(run) else {})
    monkeypatch.setattr(run_folder, "publish", lambda run, report: None)
    launch.train(tiny_world.run_config(folder / "run", **(SETTINGS | changes)))
    assert restart.newest(folder / "run.work" / "verl") == 0


def _sealed(run: Any) -> bool:
    return (run.work_dir / kept.SEAL).exists()


def test_other_restart_points_train_nothing(folder: Path, tiny_world: Any, tmp_path: Path, steps: list[int]) -> None:
    launch.train(tiny_world.run_config(tmp_path / "whole", save_every=2, **SETTINGS))
    steps.clear()
    launch.train(tiny_world.run_config(folder / "run", save_every=2, **SETTINGS))
    assert not steps and contents(folder / "run") == contents(tmp_path / "whole")


@pytest.mark.parametrize("rest", [{}, {"save_every": 1, "trackers": ["tensorboard"]}])
def test_more_steps_go_on_from_the_shorter_run(
    rest: dict[str, Any], tiny_world: Any, tmp_path: Path, steps: list[int]
) -> None:
    """To one step past a pass over the prompts, 8 steps. With two intermediate lengths, so twice."""
    launch.train(tiny_world.run_config(tmp_path / "whole", **(SETTINGS | rest | {"steps": 9})))
    for length, taken in ((3, [0, 1, 2, 3]), (8, [4, 5, 6, 7, 8]), (9, [9])):
        steps.clear()
        launch.train(tiny_world.run_config(tmp_path / "run", **(SETTINGS | rest | {"steps": length})))
        assert steps == taken
    assert contents(tmp_path / "run", "trackers") == contents(tmp_path / "whole", "trackers")


def test_what_only_a_last_step_has_is_removed_and_a_kill_in_between_is_made_good(
    folder: Path, tiny_world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Validation and export of step 3. The first try dies with half of that done; then 3 steps are asked for again."""
    run = tiny_world.run_config(folder / "run", **(SETTINGS | {"steps": 5}))
    with monkeypatch.context() as patch:
        patch.setattr(kept, "lengthen", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run_folder.prepare_work(run)
    run_folder.prepare_work(run)
    rows = [json.loads(line) for line in (folder / "run.work" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if "val/accuracy" in row["data"]] == [0]
    assert not list((folder / "run.work" / "checkpoints").iterdir()) and not _sealed(run)
    run_folder.prepare_work(tiny_world.run_config(folder / "run", **SETTINGS))
    assert restart.newest(folder / "run.work" / "verl") == 0


@pytest.mark.parametrize(
    "changes",
    [{"overrides": ["actor_rollout_ref.actor.optim.lr_scheduler_type=cosine"]}, {"tokens": {"update": "own"}}],
)
def test_a_run_that_knows_its_length_is_not_gone_on_with(
    changes: dict[str, Any], tiny_world: Any, tmp_path: Path
) -> None:
    """A schedule over all steps; records that are joined at the end."""
    assert not kept.goes_on(tiny_world.run_config(tmp_path / "run", **changes))
    assert kept.goes_on(tiny_world.run_config(tmp_path / "run"))
