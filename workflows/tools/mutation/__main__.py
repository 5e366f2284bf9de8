"""Mutation run on methods/ (no backend): python -m workflows.tools.mutation [--sample 200] [--seed 0] [--paths ...]

Puts one small fault after another into the code and runs the tests that call the changed function, fastest first.
A fault that no test notices survives. Survivors are printed as diffs; the score has a 95 % Wilson interval.
Faults that change nothing a caller can see stand in equivalent.json with the reason, and are left out of the score.
Exit status: 0, or 1 where the whole interval is below --least.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from workflows.tools.mutation.operators import Mutant, difference, enclosing_functions, excerpt, mutants, mutate
from workflows.tools.mutation.runner import ROOT, kill, preload, record

EQUIVALENT = Path(__file__).with_name("equivalent.json")
CODE = "methods"


def code_files() -> list[Path]:
    """Python files of methods/, without the backend, which needs verl and whole trainings."""
    return sorted(path for path in (ROOT / CODE).rglob("*.py") if "backend" not in path.parts)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m workflows.tools.mutation", description=__doc__.partition("\n")[0])
    parser.add_argument("--sample", type=int, default=200, help="how many faults, drawn without replacement; 0: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--paths", nargs="+", type=Path, help="only these files of methods/")
    parser.add_argument("--tests", nargs="+", default=["tests/methods"], help="tests that may notice")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after so long and count what was tried")
    parser.add_argument("--least", type=float, default=0.0, help="fail if the interval lies below, e.g. 0.9")
    args = parser.parse_args(arguments)
    files = code_files()
    if args.paths:
        files = [path for path in files if path in {each.resolve() for each in args.paths}]
        if not files:
            parser.error(f"--paths: none of these is a file of {CODE}/ outside its backend")
    sources = {path.relative_to(ROOT).as_posix(): path.read_text() for path in files}
    every = [mutant for path, source in sources.items() for mutant in mutants(path, source)]
    # In random order: what a time limit leaves is a random sample too.
    sample = random.Random(args.seed).sample(every, min(args.sample or len(every), len(every)))

    start = time.monotonic()
    preload()
    calls, seconds = record(code_files(), args.tests)
    print(f"{len(sample)} of {len(every)} faults, {len(calls)} tests, recorded in {time.monotonic() - start:.0f} s")
    known = equivalents()
    survivors, killed, skipped, unreached = [], 0, 0, 0
    for number, mutant in enumerate(sample):
        if time.monotonic() - start > 60 * args.minutes:
            print(f"\nstopped after {number} of {len(sample)} faults: {args.minutes:g} minutes are over")
            break
        source = sources[mutant.path]
        if (mutant.path, difference(source, mutant)) in known:
            skipped += 1
            continue
        tests, reached = choose(mutant, source, calls, seconds)
        unreached += not reached
        limit = 20 + 3 * sum(seconds[test] for test in tests)
        if kill(ROOT / mutant.path, mutate(source, mutant), tests, limit) == 0:
            survivors.append(mutant)
            diff = excerpt(difference(source, mutant))
            print(f"\nsurvived {mutant.path}:{mutant.line}, {mutant.operator}\n{diff}", flush=True)
        else:
            killed += 1
    low, high = wilson(killed, killed + len(survivors))
    score = killed / max(1, killed + len(survivors))
    print(
        f"\nkilled {killed} of {killed + len(survivors)}: {score:.1%} (95 % interval {low:.1%} to {high:.1%}), "
        f"{skipped} known to be equivalent left out, {unreached} in code that no test calls by name, "
        f"seed {args.seed}, {time.monotonic() - start:.0f} s"
    )
    # A small sample fails only where it shows the score to be too low.
    return 0 if high >= args.least else 1


def choose(
    mutant: Mutant, source: str, calls: dict[str, list[list]], seconds: dict[str, float]
) -> tuple[list[str], bool]:
    """(tests to run, fastest first; whether any of them calls the changed function).

    A fault outside functions, or in one that runs at import only, may show anywhere: then all tests run, those that
    call something in the same file first.
    """
    spans = enclosing_functions(source)
    span = spans.get(mutant.line)
    callers, same_file = set(), set()
    for test, found in calls.items():
        lines = [line for name, line in found if name == mutant.path]
        if lines:
            same_file.add(test)
        if span is not None and any(span[0] <= line <= span[1] for line in lines):
            callers.add(test)
    if callers:
        return sorted(callers, key=lambda test: seconds[test]), True
    return sorted(calls, key=lambda test: (test not in same_file, seconds[test])), bool(same_file)


def equivalents() -> set[tuple[str, str]]:
    """(file, diff) of faults that were shown to change nothing; the reasons stand beside them."""
    entries = json.loads(EQUIVALENT.read_text())
    return {(entry["path"], "\n".join(entry["diff"])) for entry in entries}


def wilson(hits: int, total: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's 95 % interval of a share; (0, 1) without any trial."""
    if total == 0:
        return 0.0, 1.0
    share, spread = hits / total, z * z / total
    centre = (share + spread / 2) / (1 + spread)
    half = z * math.sqrt(share * (1 - share) / total + spread / (4 * total)) / (1 + spread)
    return max(0.0, centre - half), min(1.0, centre + half)


if __name__ == "__main__":
    sys.exit(main())
