"""Where the time goes: Snakemake's benchmark files, summed per stage, or the runs of one stage per setting.

python -m workflows.scripts.time_table --timings DIR --files @LIST --output FILE
python -m workflows.scripts.time_table --timings DIR/record --files @LIST --runs --output FILE
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from methods.files import write_text


def collect(folder: Path, files: Sequence[Path], name: str) -> pd.DataFrame:
    """A row per first level below the folder (column `name`): jobs, wall seconds in all and per job, peak memory in MB.

    Only `files` count, of a grid: the folder may hold those of methods that are no longer in it. One that is not there
    is a job that was made before and whose time is lost. Raises ValueError where none of them is there.
    """
    rows = []
    for path in sorted(path for path in files if path.is_file()):
        level = path.relative_to(folder).parts[0].removesuffix(".tsv").removeprefix(f"{name}~")
        row = pd.read_csv(path, sep="\t").iloc[-1]
        # Not Snakemake's cpu_time: it is sampled, and misses most of a short job and up to 30 s of a long one.
        rows.append({name: level, "wall_s": row["s"], "memory_mb": row["max_rss"]})
    if not rows:
        raise ValueError(f"--files: none of the {len(files)} benchmark files of this grid is in {folder}")
    table = pd.DataFrame(rows).groupby(name, sort=True)
    out = table[["wall_s"]].sum().assign(jobs=table.size(), memory_mb=table["memory_mb"].max())
    out["wall_s_per_job"] = out["wall_s"] / out["jobs"]
    return out.reset_index()[[name, "jobs", "wall_s", "wall_s_per_job", "memory_mb"]].round(1)


def summarise(table: pd.DataFrame) -> str:
    """The runs of a stage in one line. A run has one thread, so its wall time is no less than its CPU time."""
    minutes, memory = table["wall_s"].sum() / 60, table["memory_mb"].max() / 1024
    runs = f"{table['jobs'].sum()} runs of one thread"
    return f"{runs}, {minutes:.1f} minutes of wall time together, at most {memory:.1f} GB each"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m workflows.scripts.time_table", description=__doc__, fromfile_prefix_chars="@"
    )
    parser.add_argument("--timings", type=Path, required=True, help="folder below which the first level names a row")
    parser.add_argument("--files", type=Path, nargs="*", required=True, help="benchmark files of this grid")
    parser.add_argument("--runs", action="store_true", help="per setting, and all runs in one line")
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    table = collect(args.timings, args.files, "setting" if args.runs else "stage")
    write_text(args.output, table.to_csv(index=False))
    if args.runs:
        print(f"[tokens] {summarise(table)}")
        return 0
    print("[time] where the time went (seconds, all jobs of a stage together)")
    print(table.to_string(index=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
