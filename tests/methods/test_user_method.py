"""Claim: a method that a user adds as the README says turns no test red; what holds of every method is held of it, too.

In a copy of this room, so that the catalogue is left alone. Not covered: the rooms that train with it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# README, "One method is one file".
ADDED = '''"""Capped policy gradient: g = min(r, C) · A.  Source: this work."""

from dataclasses import dataclass

from torch import Tensor

from methods import MethodConfig, Signals, check_positive, register


@dataclass(frozen=True)
class Config(MethodConfig):
    cap: float = 2.0
    """C of min(r, C)."""

    def __post_init__(self) -> None:
        check_positive("cap", self.cap)


@register("my_method", title="My method", source="this work", mark="N", config=Config)
def coefficient(signals: Signals, config: Config) -> Tensor:
    """g, [B, T]."""
    return signals.ratio().clamp(max=config.cap) * signals.advantages
'''
# What demands something of each of our methods, or goes through every method that is registered.
TESTS = (
    "../eval/test_method_pages.py::test_the_committed_index_links_the_catalogue",
    "test_registry.py",
    "test_config.py::test_every_option_of_every_method_is_tried",
    "test_definitions.py::test_every_shipped_method_has_a_definition_test",
    "test_catalogue_properties.py",
    "test_check.py",
)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This room and its tests, with the user's file in the catalogue."""
    folder = tmp_path_factory.mktemp("copy")
    kept = shutil.ignore_patterns("__pycache__", "data", "derivations", "figures", "tokens", "workflows")
    for room in ("methods", "eval", "tests"):
        shutil.copytree(ROOT / room, folder / room, ignore=kept)
    shutil.copy(ROOT / "pyproject.toml", folder)
    (folder / "methods" / "catalogue" / "my_method.py").write_text(ADDED)
    return folder


def outcomes(folder: Path) -> dict[str, str]:
    """{test: passed or failed} of what concerns all our methods, or the new one."""
    concerned = "my_method or shipped or every_option_of_every_method or index or titles or unknown_name or our_methods"
    command = [sys.executable, "-m", "pytest", "-rA", "-q", "-p", "no:cacheprovider", "-k", concerned]
    done = subprocess.run(
        [*command, *(f"tests/methods/{test}" for test in TESTS)],
        cwd=folder,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith(("PASSED ", "FAILED "))]
    assert lines, done.stdout + done.stderr
    return {line[1].partition("::")[2]: line[0] for line in lines}


def test_a_users_method_is_checked_and_owes_nothing_more(copy: Path) -> None:
    found = outcomes(copy)
    assert set(found.values()) == {"PASSED"}, found
    assert "test_every_method_keeps_its_contract[my_method]" in found


def test_a_method_of_ours_owes_a_page_a_definition_and_bad_values(copy: Path) -> None:
    """The same file in the list of our own: everything that was forgotten is red."""
    helpers = copy / "tests" / "methods" / "helpers.py"
    helpers.write_text(helpers.read_text().replace("SHIPPED = (", 'SHIPPED = (\n    "my_method",'))
    red = {test for test, outcome in outcomes(copy).items() if outcome == "FAILED"}
    assert red == {
        "test_a_catalogue_file_is_short_and_tells_its_source[my_method]",
        "test_a_file_is_short_and_tells_its_source[my_method]",
        "test_the_committed_index_links_the_catalogue",
        "test_every_option_of_every_method_is_tried",
        "test_every_shipped_method_has_a_definition_test",
    }
