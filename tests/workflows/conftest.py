"""One project for all workflow tests, run once through Snakemake; the tests look at it and change it."""

from __future__ import annotations

import shutil

import pytest

from tiny_project import CONFIG, COPIED, ROOT, Project


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The copy, after one whole run."""
    root = tmp_path_factory.mktemp("project")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, root / name)
    made = Project(root)
    made.write_config(CONFIG)
    made.snakemake()
    return made
