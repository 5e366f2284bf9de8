"""After a kill of Snakemake: what it has left running of a tier is ended, so that the next run can take its place.

A training goes on from its last restart point, any other job is done again; nothing half-made counts as done.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil

MARK = "TETHER_RESULTS"  # set by rules/common.smk for all jobs of a tier
PATIENCE_SECONDS = 15.0


def jobs(results: Path) -> list[psutil.Process]:
    """Living processes of a tier's jobs, whoever started them."""
    wanted, found = os.path.abspath(results), []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == wanted and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return [process for process in found if process.pid not in _own()]


def snakemake_of(process: psutil.Process) -> psutil.Process | None:
    """The Snakemake that a job runs under; None where that is gone."""
    try:
        return next((each for each in process.parents() if is_snakemake(each)), None)
    except psutil.Error:
        return None


def is_snakemake(process: psutil.Process) -> bool:
    """Whether a process is Snakemake, by its command line."""
    try:
        words = process.cmdline()[:3]
    except psutil.Error:
        return False
    return any(Path(word).name == "snakemake" for word in words)


def recover(results: Path) -> int:
    """0 when nothing of the tier runs any more; 2, with a line, where Snakemake itself is at work on it."""
    found = jobs(results)
    working = next((owner for owner in map(snakemake_of, found) if owner is not None), None)
    if working is not None:
        print(
            f"error: Snakemake (process {working.pid}) is at work on {results}: nothing is to be recovered; wait for "
            "it, or stop it by Ctrl-C",
            file=sys.stderr,
        )
        return 2
    for line in dict.fromkeys(_describe(found)):
        print(f"[recover] ended: {line}, left running by a killed Snakemake", flush=True)
    for process in found:
        _end(process)
    for process in psutil.wait_procs(found, PATIENCE_SECONDS)[1]:
        _end(process, by_force=True)
    psutil.wait_procs(found, PATIENCE_SECONDS)
    return 0


def _own() -> set[int]:
    return {os.getpid(), *(process.pid for process in psutil.Process().parents())}


def _describe(found: list[psutil.Process]) -> Iterator[str]:
    """A line per program; shells around it and the helpers of Ray below it are ended without one."""
    for process in found:
        try:
            words = process.cmdline()
        except psutil.Error:
            continue
        if "-m" in words[:-1]:
            yield f"python -m {words[words.index('-m') + 1]} (process {process.pid})"


def _end(process: psutil.Process, by_force: bool = False) -> None:
    with contextlib.suppress(psutil.Error):
        process.kill() if by_force else process.terminate()
