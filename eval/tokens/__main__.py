"""The token study from records.

python -m eval.tokens study   RECORD... --tables DIR --verdicts FILE     all tables, and the verdicts
python -m eval.tokens replay  RECORD [--methods NAME...]              every method's coefficient on the same tokens
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from eval.files import InputError, write_csv
from eval.tokens import open_questions, records, run_tables, study, summary, verdicts
from eval.tokens import replay as replaying
from eval.tokens.tally import ACTIONS


def write_tables(paths: Sequence[Path], output: Path, judged: Path) -> None:
    """All tables of the study below `output`, the verdicts in `judged`; progress on standard error."""
    rows, sweeps, reasons, changed = [], [], [], []
    identities: dict[str, dict[str, Any]] = {}
    for number, (path, described) in enumerate(records.one_study(paths).items(), start=1):
        rows += list(study.rows(str(path)))
        sweeps += list(run_tables.sweep_rows(str(path)))
        reasons.append(run_tables.cause_row(str(path)))
        identities.setdefault(described["setting"], described)
        changed += list(run_tables.change_rows(str(path)))
        print(f"[tokens {number}/{len(paths)}] {path}", file=sys.stderr, flush=True)
    means = summary.summarise(rows)
    write_csv(output / "tokens_seeds.csv", list(rows[0]), rows)
    write_csv(output / "tokens_summary.csv", summary.COLUMNS, means)
    write_csv(output / "tokens_sweep.csv", list(sweeps[0]), sweeps)
    write_csv(output / "tokens_causes.csv", list(reasons[0]), reasons)
    write_csv(output / "tokens_changes.csv", run_tables.CHANGE_COLUMNS, changed)
    answered = open_questions.rows(rows, sweeps, reasons, identities)
    write_csv(output / "tokens_open.csv", open_questions.COLUMNS, answered)
    write_csv(judged, verdicts.COLUMNS, verdicts.rows(means))


def print_replay(path: Path, names: Sequence[str]) -> None:
    """Shares of active tokens by action, a confusion matrix for each pair, and where the pairs differ."""
    done = replaying.tally(path, names)
    print(f"{path}: {done.tokens} active tokens of responses kept whole")
    for name, why in done.skipped.items():
        print(f"  {name}: left out, it {why}")
    width = max(map(len, done.methods), default=0)
    print(f"\n{'':{width}}  " + "  ".join(f"{name:>10}" for name in ACTIONS))
    for name in done.methods:
        print(f"{name:{width}}  " + "  ".join(f"{share:10.4f}" for share in done.shares(name)))
    for one, other in combinations(done.methods, 2):
        table = done.confusion(one, other)
        differ = done.tokens - int(np.trace(table))
        if not differ:
            print(f"\n{one} / {other}: the same action on every token")
            continue
        print(f"\n{one} / {other}: differ on {differ} tokens ({differ / done.tokens:.4f})")
        for action, counts in zip(ACTIONS, table, strict=True):
            print(f"  {one} {action:10}  " + "  ".join(f"{count:8d}" for count in counts))
        parts = [f"{name} {share:.4f}" for name, share in done.share_that_differs(one, other).items()]
        print("  share that differs: " + ", ".join(parts))


def main(arguments: Sequence[str] | None = None) -> int:
    """0, or 2 after one line that says what is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m eval.tokens", description=__doc__.splitlines()[0], fromfile_prefix_chars="@"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    tables = commands.add_parser("study")
    tables.add_argument("records", type=Path, nargs="+")
    tables.add_argument("--tables", type=Path, required=True, help="folder of the tables")
    tables.add_argument("--verdicts", type=Path, required=True, help="file of the verdicts")
    again = commands.add_parser("replay")
    again.add_argument("record", type=Path)
    again.add_argument("--methods", nargs="+", default=None, help="default: all that the record has the signals for")
    args = parser.parse_args(arguments)
    try:
        if args.command == "study":
            write_tables(records.find_records(args.records), args.tables, args.verdicts)
        else:
            from methods import registry
            from methods.config import did_you_mean

            known = registry.names()
            for name in args.methods or ():
                if name not in known:
                    raise InputError(f"--methods {name!r}: allowed are {', '.join(known)}{did_you_mean(name, known)}")
            print_replay(args.record, args.methods or known)
    except (InputError, OSError) as error:
        print(f"eval.tokens: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
