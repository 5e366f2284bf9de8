"""The workflow's lints, held against a list of accepted ones: Snakemake's own exit code knows no exceptions.

python -m workflows lint --configfile FILE [--configfile FILE]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from snakemake.api import SnakemakeApi
from snakemake.settings.types import ConfigSettings, OutputSettings, ResourceSettings

# (rule or file, title of the lint): why it stands. One that is no longer found is reported too, and has to go.
# `*` stands for every rule.
ACCEPTED: dict[tuple[str, str], str] = {
    ("*", "Specify a conda environment or container for each rule."): (
        "one environment runs all rules: `make` sets it up from pyproject.toml and constraints.txt"
    ),
}


def lints(report: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(rule or file, title) of everything in a report {rules, snakefiles} of Snakemake's linters."""
    for kind in ("rules", "snakefiles"):
        for item in report.get(kind) or []:
            place = item["for"].get("rule") or Path(item["for"].get("snakefile", "?")).name
            yield from ((place, lint["title"]) for lint in item["lints"])


def _report(made: Any) -> dict[str, Any]:
    """Both linters' reports as values; `snakemake --lint json` cannot write those of included files."""
    from snakemake.linting.rules import RuleLinter
    from snakemake.linting.snakefiles import SnakefileLinter

    # As the API's own `lint` begins.
    workflow = made._get_workflow(check_envvars=False)
    workflow.include(made.snakefile, overwrite_default_target=True, print_compilation=False)
    workflow.check()
    (files, _), (rules, _) = (
        linter(workflow, items).lint(json=True)
        for linter, items in ((SnakefileLinter, workflow.included), (RuleLinter, workflow.rules))
    )
    return {"snakefiles": files, "rules": rules}


def judge(found: set[tuple[str, str]], accepted: dict[tuple[str, str], str]) -> list[str]:
    """A line per lint that is not accepted, and per accepted one that is gone."""
    everywhere = {title for place, title in accepted if place == "*"}
    found = {("*", title) if title in everywhere else (place, title) for place, title in found}
    new = [f"{place}: {title}" for place, title in sorted(found - set(accepted))]
    gone = [f"{place}: {title}: accepted, but no longer there" for place, title in sorted(set(accepted) - found)]
    return new + gone


def check(configfiles: list[str]) -> int:
    """0 when exactly the accepted lints are found under each configuration. Raises Snakemake's errors."""
    found: set[tuple[str, str]] = set()
    for path in configfiles:
        with SnakemakeApi(OutputSettings(dryrun=True)) as api:
            made = api.workflow(
                resource_settings=ResourceSettings(cores=1),
                config_settings=ConfigSettings(configfiles=[Path(path)]),
                snakefile=Path("Snakefile"),
            )
            found |= set(lints(_report(made)))
    problems = judge(found, ACCEPTED)
    for problem in problems:
        print(f"lint: {problem}", file=sys.stderr)
    print(f"[lint] {len(found)} lints; not accepted: {len(problems)}")
    return 1 if problems else 0
