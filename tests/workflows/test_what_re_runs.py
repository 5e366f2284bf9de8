"""workflow: a changed file of ours re-runs what it is part of, and nothing else. Dry runs alone, over empty results."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tiny_project import CONFIG, Project

NEW = "methods/measures/never_imported.py"


def listed(out: str, kind: str) -> list[str]:
    """The files that a dry run lists as `kind` of its jobs."""
    lines = [line.strip() for line in out.splitlines()]
    found = [line.removeprefix(f"{kind}: ") for line in lines if line.startswith(f"{kind}: ")]
    return [name for line in found for name in line.split(", ")]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project whose results are all there, though empty; a file's time says whether it is older than its inputs.

    Not covered: Snakemake's checksums, by which new times on the same bytes re-run nothing (test_pipeline.py).
    """
    made = Project.copied(tmp_path_factory.mktemp("finished"))
    made.write_config(CONFIG)
    out = made.snakemake("--dry-run")
    # A job with a message of its own lists no outputs; why it runs names them.
    missing = [line for line in out.splitlines() if "Missing output files: " in line]
    unsaid = [name for line in missing for name in re.findall(r"results/tiny/[^ ,;]+", line)]
    for name in [*listed(out, "output"), *unsaid]:
        path = made.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.name == "checkpoints":
            path.mkdir(exist_ok=True)
        else:
            path.touch()
    for path in made.results.rglob("*"):
        os.utime(path, (2e9, 2e9))
    return made


@contextmanager
def changed(project: Project, *names: str) -> Iterator[None]:
    """Files that are newer than every result; one that was not there is made."""
    before = {path: path.stat() if path.exists() else None for path in (project.root / name for name in names)}
    for path in before:
        path.touch()
        os.utime(path, (3e9, 3e9))
    yield
    for path, stat in before.items():
        if stat is None:
            path.unlink()
        else:
            os.utime(path, (stat.st_atime, stat.st_mtime))


def test_files_that_no_program_of_the_grid_imports_re_run_nothing(finished: Project) -> None:
    """The command line, a page, a method that the grid does not name, and a new file beside those that are used."""
    with changed(finished, "methods/__main__.py", "eval/method_pages/page.py", "methods/catalogue/cispo.py", NEW):
        out = finished.snakemake("--dry-run")
    assert finished.jobs(out) == {}, out


@pytest.mark.parametrize(
    ("name", "rules", "trained"),
    [
        ("methods/backend/run/log.py", {"train", "score"}, {"dppo_topk_kl", "drpo_small"}),
        ("methods/catalogue/drpo.py", {"train", "score", "agree", "theory"}, {"drpo_small"}),
        ("eval/harness.py", {"score", "tables"}, set()),
        ("workflows/world/tokens.py", {"world", "warm_start", "train"}, {"dppo_topk_kl", "drpo_small"}),
    ],
)
def test_a_file_re_runs_the_programs_that_import_it(
    name: str, rules: set[str], trained: set[str], finished: Project
) -> None:
    with changed(finished, name):
        out = finished.snakemake("--dry-run")
    assert rules <= set(finished.jobs(out)), finished.jobs(out)
    logs = [Path(path) for path in listed(out, "log")]
    assert {path.parent.name.partition("~")[2] for path in logs if "train" in path.parts} == trained, out
