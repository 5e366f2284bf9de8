"""definition: the files that a training reads of a model's folder and of a reward, and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from methods.backend.run.model_folder import model_files, reward_files

READ = (
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "model.safetensors.index.json",
    "model-00001-of-00002.safetensors",
    "pytorch_model.bin",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "additional_chat_templates/tools.jinja",
    "modeling_own.py",
    "layers/own.py",
)
UNREAD = ("README.md", "training_args.bin", "optimizer.pt", "runs/events.out", "notes.txt", "onnx/model.onnx")


def test_every_file_that_is_read_and_no_other(tmp_path: Path) -> None:
    for name in (*READ, *UNREAD):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert {path.relative_to(tmp_path).as_posix() for path in model_files(tmp_path)} == set(READ)


def test_what_transformers_wrote_is_all_read(tiny_world: Any) -> None:
    """The list against what transformers saves for a model of ours: nothing of it is left out."""
    assert model_files(tiny_world.model) == sorted(path for path in tiny_world.model.iterdir() if path.is_file())


def test_a_folder_that_is_not_there_has_no_files(tmp_path: Path) -> None:
    assert model_files(tmp_path / "nowhere") == []


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.mark.parametrize(
    "line",
    [
        "import helper",
        "import helper as h",
        "from helper import weight",
        "from . import helper",
        "from .helper import weight as w",
        "def f():\n    import helper",
    ],
)
def test_a_module_beside_the_reward_however_it_is_imported(line: str, tmp_path: Path) -> None:
    write(tmp_path, {"reward.py": f"import math\n{line}\n", "helper.py": "", "unused.py": ""})
    assert reward_files(tmp_path / "reward.py") == [tmp_path / "helper.py", tmp_path / "reward.py"]


def test_packages_and_modules_that_modules_import(tmp_path: Path) -> None:
    """Also a cycle, a package's own file, one that a package's module takes from above, and a file of no Python."""
    write(
        tmp_path,
        {
            "reward.py": "from grader.math import equal\n",
            "grader/__init__.py": "",
            "grader/math.py": "from ..words import clean\nimport reward\n",
            "grader/unused.py": "",
            "words.py": "def broken(:\n",
        },
    )
    names = {path.relative_to(tmp_path).as_posix() for path in reward_files(tmp_path / "reward.py")}
    assert names == {"reward.py", "grader/__init__.py", "grader/math.py", "words.py"}


def test_a_module_below_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are started from the project's root, which Python then looks into."""
    write(tmp_path, {"rewards/own.py": "from shared.grading import equal\n", "shared/grading.py": ""})
    monkeypatch.chdir(tmp_path)
    assert reward_files("rewards/own.py") == [Path("rewards/own.py"), Path("shared/grading.py")]
