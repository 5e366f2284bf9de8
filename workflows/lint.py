"""The workflow's lints, held against a list of accepted ones: Snakemake's own exit code knows no exceptions.

python -m workflows lint --configfile FILE [--configfile FILE]
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# (rule or file, title of the lint): why it stands. One that is no longer found is to be taken out, which is told too.
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
    """Lint under each configuration: 0 when exactly the accepted lints are found. RuntimeError where there is no report."""
    found: set[tuple[str, str]] = set()
    for path in configfiles:
        command = [sys.executable, "-m", "snakemake", "--lint", "json", "--configfile", path]
        done = subprocess.run(command, capture_output=True, text=True)
        start = done.stdout.find("{")
        if start < 0 and done.returncode:
            raise RuntimeError(f"snakemake --lint with {path} gave no report: {done.stderr[-2000:]}")
        found |= set(lints(json.loads(done.stdout[start:]))) if start >= 0 else set()
    problems = judge(found, ACCEPTED)
    for problem in problems:
        print(f"lint: {problem}", file=sys.stderr)
    print(f"[lint] {len(found)} lints, {len(ACCEPTED)} of them accepted")
    return 1 if problems else 0
