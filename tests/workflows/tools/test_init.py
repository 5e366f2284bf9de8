"""definition: `python -m workflows init` writes a configuration that runs, or one line and nothing.

Not covered: that the learning rate suits a model; a training of what is written is that of test_pipeline.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from tiny_project import ROOT
from workflows.__main__ import main
from workflows.grid import Grid

REWARD = str(ROOT / "workflows" / "world" / "reward.py")


def arguments(tiny_world: Any, folder: Path, **changes: Any) -> list[str]:
    given = {
        "model": str(tiny_world.model),
        "data": str(tiny_world.train),
        "val": str(tiny_world.test),
        "reward": REWARD,
        "output": str(folder / "mine.yaml"),
        **changes,
    }
    return ["init", *(text for name, value in given.items() if value for text in (f"--{name}", str(value)))]


def test_what_is_written_passes_every_check_and_says_what_it_found(
    tiny_world: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lengths come from the data, the task is found under its relative path, and all of it fits on one screen."""
    task = shutil.copytree(ROOT / "eval" / "tasks" / "sort", tmp_path / "mytask")
    path = task / "sort.yaml"
    path.write_text(path.read_text().replace("task: sort", "task: mysort"))
    given = arguments(tiny_world, tmp_path, task="mysort", **{"include-path": str(task)})
    assert main(given) == 0
    out = capsys.readouterr().out.splitlines()
    assert len(out) <= 20 and all(len(line) < 200 for line in out), out
    said = "\n".join(out)
    for words in (
        "qwen3, 45 ids, 64 positions",
        "the first prompt is <bos> ",
        "64, of 5 to 5 tokens",
        "validated on tether/sort",
        "'no answer' 0",
        "scored    by mysort",
        f"next: snakemake --cores 2 --workflow-profile workflows/profiles/local --configfile {tmp_path / 'mine.yaml'}",
    ):
        assert words in said, said
    config = yaml.safe_load((tmp_path / "mine.yaml").read_text())
    runs = list(Grid.check(config, "mine.yaml").runs().values())
    assert [run.method for run in runs] == ["dppo_topk_kl", "drpo"] and config["tier"] == "mine"
    setting = runs[0].setting
    assert (setting.prompt_length, setting.response_length, setting.prompts, setting.top_k) == (5, 59, 32, 20)
    assert config["scoring"]["problems"] == 16
    capsys.readouterr()
    assert main(given) == 2
    assert "mine.yaml: it exists; allowed is a new file" in capsys.readouterr().err


def test_a_model_without_a_template_is_prompted_plainly(
    tiny_world: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = shutil.copytree(tiny_world.model, tmp_path / "model")
    (model / "chat_template.jinja").unlink()
    assert main(arguments(tiny_world, tmp_path, model=model, val=None, **{"response-length": 4})) == 0
    out = capsys.readouterr().out
    assert "the tokenizer has none: contents as they are" in out and "no --val was given" in out
    (setting,) = yaml.safe_load((tmp_path / "mine.yaml").read_text())["settings"].values()
    assert setting["chat_template"] is False and setting["prompt_length"] == 3 and setting["response_length"] == 4


def gpt2(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt2", "vocab_size": 45}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "nowhere"}, "--model = nowhere: no such folder"),
        ({"data": "no.parquet"}, "--data = no.parquet: not a readable parquet file"),
        ({"reward": "no.py"}, "no.py: no such file or directory"),
        ({"reward": f"{REWARD}:grade"}, ":grade: no function of that name in the file"),
        ({"task": "mysort"}, "--task, --include-path: allowed are both or neither"),
        (
            {"task": "mysort", "include-path": "eval/tasks"},
            "task.name = 'mysort': no task of eval/tasks; allowed are sort",
        ),
        ({"response-length": 60}, "prompt_length + response_length = 5 + 60 = 65: allowed is at most the model's 64"),
    ],
)
def test_what_is_wrong_is_one_line(
    changes: dict[str, Any],
    message: str,
    tiny_world: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    assert main(arguments(tiny_world, tmp_path, **changes)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and message in line
    assert not (tmp_path / "mine.yaml").exists()


def test_an_architecture_that_verl_cannot_train_is_named(
    tiny_world: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gpt2(model := shutil.copytree(tiny_world.model, tmp_path / "model"))
    assert main(arguments(tiny_world, tmp_path, model=model)) == 2
    assert "model_type = 'gpt2': an architecture without num_key_value_heads" in capsys.readouterr().err


def test_too_few_rows(tiny_world: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pd.read_parquet(tiny_world.train)[:3].to_parquet(tmp_path / "few.parquet")
    assert main(arguments(tiny_world, tmp_path, data=tmp_path / "few.parquet")) == 2
    assert "error: --data: 3 rows; allowed are at least 4" in capsys.readouterr().err
