"""property: what a run depends on is what its process has loaded of ours, and nothing that it has not asked for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from methods.backend.run import dependencies
from methods.backend.run.folder import fingerprint

# Only these methods are registered: a training imports the whole catalogue, the rest of which decides nothing.
REPORT = """
import importlib, json, sys
from methods.backend import launch
from methods import registry
registry.load_catalogue = lambda: [importlib.import_module(f"methods.catalogue.{n}") for n in ("mask_drpo", "pg_is")]
code = launch.main([sys.argv[1]])
files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
open(sys.argv[2], "w").write(json.dumps([path for path in files if path]))
sys.exit(code)
"""


def names(paths: list[Path]) -> list[str]:
    return [path.relative_to(dependencies.ROOT).as_posix() for path in paths]


def test_whatever_a_training_has_loaded_is_in_the_list(tiny_world: Any, tmp_path: Path) -> None:
    """A real run that records tokens, compared with its `sys.modules`.

    The list goes beyond it: what Ray, the server and vLLM import, which this run does not use. Not covered: a file that
    a program reads without importing it, and a module whose name it puts together at run time.
    """
    run = tiny_world.run_config(tmp_path / "run", method="mask_drpo", steps=1, tokens={"every": 1, "ks": [1, 5]})
    (tmp_path / "run.json").write_text(json.dumps(run.dump()))
    done = subprocess.run(
        [sys.executable, "-c", REPORT, str(tmp_path / "run.json"), str(tmp_path / "loaded.json")],
        cwd=dependencies.ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    loaded = map(Path, json.loads((tmp_path / "loaded.json").read_text()))
    rooms = [dependencies.ROOT / room for room in ("methods", "eval", "workflows", "derivations")]
    ours = {path for path in loaded if any(path.is_relative_to(room) for room in rooms)}
    known = {*dependencies.training_program(run), *dependencies.files_read(run)}
    assert len(ours) > 40 and not ours - known, names(sorted(ours - known))
    beyond = names(sorted(known - ours - set(dependencies.files_read(run))))
    assert all("ray" in name or "server" in name or "vllm" in name for name in beyond), beyond


@pytest.mark.parametrize(
    ("method", "own"),
    [
        ("pg_is", ["pg_is"]),
        ("mask_drpo", ["drpo", "mask_drpo"]),
        ("minirl_tis", ["minirl", "minirl_tis"]),
    ],
)
def test_a_method_brings_its_own_file_and_what_it_imports(
    method: str, own: list[str], tiny_world: Any, tmp_path: Path
) -> None:
    """So that a change of DRPO's file re-trains what is built on it, and a new method re-trains nothing.

    A run that records tokens takes the step of PG-IS, by name, unless it looks at its own.
    """
    for update, probe in ((None, []), ("own", []), ("unmasked", ["pg_is"])):
        tokens = None if update is None else {"update": update}
        program = dependencies.training_program(tiny_world.run_config(tmp_path, method=method, tokens=tokens))
        assert [path.stem for path in program if path.parent.name == "catalogue" and path.stem != "__init__"] == sorted(
            {*own, *probe}
        )
    assert not {"methods/__main__.py", "eval/method_pages/page.py"} & set(names(program))
    assert {"methods/backend/worker.py", "methods/backend/ray/launch.py", "methods/signals.py"} <= set(names(program))


@pytest.mark.parametrize(
    "line",
    [
        "import room.helper",
        "import room.helper as h",
        "from room import helper",
        "from room.helper import weight",
        "from . import helper",
        "from .helper import weight",
        "def f():\n    from .. import room\n    from ..room import helper",
        "NAME = 'room.helper.Class'",
        "if TYPE_CHECKING:\n    import room.typed\nelse:\n    import room.helper",
    ],
)
def test_every_way_to_import_a_helper_is_seen(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dependencies, "ROOT", tmp_path)
    room = tmp_path / "room"
    room.mkdir()
    for name, text in (("__init__", ""), ("helper", "import room.below"), ("below", ""), ("typed", ""), ("other", "")):
        (room / f"{name}.py").write_text(text)
    (room / "method.py").write_text(f"{line}\n")
    found = [path.stem for path in dependencies.program_files("room.method")]
    assert found == ["__init__", "below", "helper", "method"]


def test_the_restart_fingerprint_and_the_pipeline_have_one_list(tiny_world: Any, tmp_path: Path) -> None:
    """The pipeline's is looked at by dry runs (tests/workflows/test_what_re_runs.py)."""
    run = tiny_world.run_config(tmp_path / "run", method="pg_is")
    record = fingerprint(run)
    assert list(record["program"]) == names(dependencies.training_program(run))
    assert set(record["inputs"]) == {str(path) for path in dependencies.files_read(run)}
    read = {Path(path).name for path in record["inputs"]}
    assert {
        "config.json",
        "model.safetensors",
        "generation_config.json",
        "chat_template.jinja",
        "train.parquet",
    } <= read
