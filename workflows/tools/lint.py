"""The workflow's lints, held against a list of accepted ones: Snakemake's own exit code knows no exceptions.

python -m workflows lint --configfile FILE [--configfile FILE]
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from snakemake.api import SnakemakeApi
from snakemake.settings.types import ConfigSettings, OutputSettings, ResourceSettings

# (rule or file, title of the lint): why it stands. One that is no longer found is reported too, and has to go.
ACCEPTED: dict[tuple[str, str], str] = {}


def lints(report: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(rule or file, title) of everything in a report of `snakemake --lint json`."""
    for kind in ("rules", "snakefiles"):
        for item in report.get(kind) or []:
            place = item["for"].get("rule") or Path(item["for"].get("snakefile", "?")).name
            yield from ((place, lint["title"]) for lint in item["lints"])


def judge(found: set[tuple[str, str]], accepted: dict[tuple[str, str], str]) -> list[str]:
    """A line per lint that is not accepted, and per accepted one that is gone."""
    new = [f"{place}: {title}" for place, title in sorted(found - set(accepted))]
    gone = [f"{place}: {title}: accepted, but no longer there" for place, title in sorted(set(accepted) - found)]
    return new + gone


def check(configfiles: list[str]) -> int:
    """0 when exactly the accepted lints are found under each configuration. Raises Snakemake's errors."""
    found: set[tuple[str, str]] = set()
    for path in configfiles:
        out = io.StringIO()
        # Through Python: the command line gives no report in JSON.
        with SnakemakeApi(OutputSettings(dryrun=True)) as api, contextlib.redirect_stdout(out):
            workflow = api.workflow(
                resource_settings=ResourceSettings(cores=1),
                config_settings=ConfigSettings(configfiles=[Path(path)]),
                snakefile=Path("Snakefile"),
            )
            workflow.lint(json=True)
        found |= set(lints(json.loads(out.getvalue())))
    problems = judge(found, ACCEPTED)
    for problem in problems:
        print(f"lint: {problem}", file=sys.stderr)
    print(f"[lint] {len(found)} lints, {len(ACCEPTED)} of them accepted")
    return 1 if problems else 0
