"""One project for all workflow tests, run once through Snakemake; the tests look at it and change it."""

from __future__ import annotations

import pytest

from tiny_project import CONFIG, Project


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The copy, after one whole run."""
    made = Project.copied(tmp_path_factory.mktemp("project"))
    made.write_config(CONFIG)
    made.snakemake()
    return made
