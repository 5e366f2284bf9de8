"""workflow: what tiers share, and what is left over when a tier is finished.

Does not cover that two machines with one file system make the same warm start: the key names the kind of machine only.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from workflows.files import remove_empty
from workflows.world import build, warm_start
from workflows.world.sorting import SortingWorld

TRAINING = {"target": 0.0, "batch": 8, "check_every": 2, "check_prompts": 4}


def make(
    root: Path, tier: str, monkeypatch: pytest.MonkeyPatch, seed: int = 0, training: dict[str, float] = TRAINING
) -> Path:
    """Run the program as the rule does; the folder it has filled."""
    output = root / tier / "warm"
    command = ["x", "--world", str(root / "world"), "--model", json.dumps({"hidden": 32, "layers": 1, "heads": 1})]
    command += ["--training", json.dumps(training), "--seed", str(seed), "--shared", str(root / "shared")]
    monkeypatch.setattr("sys.argv", [*command, "--output", str(output)])
    assert warm_start.main() == 0
    return output


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_warm_start_of_the_same_settings_is_made_once_for_all_tiers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    build.write(SortingWorld(3, 40, 10, 5, 0), tmp_path / "world")
    first = make(tmp_path, "ci", monkeypatch)
    before, said = contents(first), capsys.readouterr().out
    assert "step 2" in said and "taken from" not in said

    second = make(tmp_path, "toy", monkeypatch)
    said = capsys.readouterr().out
    assert "step 2" not in said and "taken from" in said
    assert contents(second) == before and {"model.safetensors", "config.json", "tokenizer.json"} <= set(before)

    # `make clean` of one tier, or of what is shared, takes nothing from another.
    shutil.rmtree(tmp_path / "ci")
    shutil.rmtree(tmp_path / "shared")
    assert contents(second) == before
    assert contents(make(tmp_path, "ci", monkeypatch)) == before, "made again, the same"

    for changed in ({"seed": 1}, {"training": {**TRAINING, "lr": 0.01}}):
        capsys.readouterr()
        assert contents(make(tmp_path, "engines", monkeypatch, **changed)) != before  # type: ignore[arg-type]
        assert "taken from" not in capsys.readouterr().out
    assert len(list((tmp_path / "shared").iterdir())) == 3, "each by its key, nothing half-made"


def test_of_two_made_at_the_same_time_the_first_stays(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_text(name)
        warm_start.share(tmp_path / name, tmp_path / "shared" / "key")
    assert contents(tmp_path / "shared") == {"key/model.safetensors": b"a"}


def test_empty_folders_are_removed_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "work" / "setting~A" / "variant~x").mkdir(parents=True)
    (tmp_path / "work" / "setting~B" / "seed~0").mkdir(parents=True)
    (tmp_path / "work" / "setting~B" / "seed~0.lock").touch()
    remove_empty(tmp_path / "work")
    assert [path.name for path in (tmp_path / "work").rglob("*")] == ["setting~B", "seed~0.lock"]
    (tmp_path / "work" / "setting~B" / "seed~0.lock").unlink()
    remove_empty(tmp_path / "work")
    remove_empty(tmp_path / "never")
    assert list(tmp_path.iterdir()) == []
