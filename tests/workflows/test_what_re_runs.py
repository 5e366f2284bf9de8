"""workflow: a changed file of ours re-runs what it is part of, and nothing else. Dry runs alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tiny_project import Project

NEW = "methods/measures/never_imported.py"


@contextmanager
def changed(project: Project, *names: str) -> Iterator[None]:
    """Files with a line more; a file that was not there is made."""
    before = {name: (project.root / name).read_bytes() if (project.root / name).exists() else None for name in names}
    for name, text in before.items():
        (project.root / name).write_bytes((text or b"") + b"\n# One line more.\n")
    yield
    for name, text in before.items():
        if text is None:
            (project.root / name).unlink()
        else:
            (project.root / name).write_bytes(text)


def test_files_that_no_program_of_the_grid_imports_re_run_nothing(project: Project) -> None:
    """The command line, a page, a method that the grid does not name, and a new file beside those that are used."""
    with changed(project, "methods/__main__.py", "methods/describe/page.py", "methods/catalogue/cispo.py", NEW):
        assert project.planned() == {}


@pytest.mark.parametrize(
    ("name", "rules", "trained"),
    [
        ("methods/backend/run_log.py", {"train", "score", "manifest"}, {"dppo_topk_kl", "drpo_small"}),
        ("methods/catalogue/drpo.py", {"train", "agree"}, {"drpo_small"}),
        ("eval/harness.py", {"score", "tables"}, set()),
        ("workflows/world/sorting.py", {"world", "warm_start", "train"}, {"dppo_topk_kl", "drpo_small"}),
        ("derivations/formulas.py", {"derive", "agree", "report"}, set()),
        ("eval/figures/finite_step.py", {"theory", "report"}, set()),
    ],
)
def test_a_file_re_runs_the_programs_that_import_it(
    name: str, rules: set[str], trained: set[str], project: Project
) -> None:
    with changed(project, name):
        out = project.snakemake("--dry-run")
    plan = project.jobs(out)
    assert rules <= set(plan), plan
    jobs = [block.splitlines() for block in out.split("\nrule ") if block.startswith("train:")]
    places = [line for job in jobs for line in job if line.strip().startswith("log:")]
    known = {"dppo_topk_kl", "drpo_small"}
    assert {method for method in known if any(f"method~{method}/" in line for line in places)} == trained
    assert project.planned() == {}
