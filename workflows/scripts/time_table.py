"""Where the time goes: Snakemake's benchmark files, summed per stage.

python -m workflows.scripts.time_table --timings DIR --output FILE
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pandas as pd

from workflows.files import write_text


def collect(folder: Path) -> pd.DataFrame:
    """One row per stage: jobs, wall seconds in all and per job, peak memory in MB."""
    rows = []
    for path in sorted(folder.rglob("*.tsv")):
        stage = path.relative_to(folder).parts[0].removesuffix(".tsv")
        row = pd.read_csv(path, sep="\t").iloc[-1]
        # Not Snakemake's cpu_time: it is sampled, and misses most of a short job.
        rows.append({"stage": stage, "wall_s": row["s"], "memory_mb": row["max_rss"]})
    table = pd.DataFrame(rows).groupby("stage", sort=True)
    out = table[["wall_s"]].sum().assign(jobs=table.size(), memory_mb=table["memory_mb"].max())
    out["wall_s_per_job"] = out["wall_s"] / out["jobs"]
    return out.reset_index()[["stage", "jobs", "wall_s", "wall_s_per_job", "memory_mb"]].round(1)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m workflows.scripts.time_table", description=__doc__)
    parser.add_argument("--timings", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    table = collect(args.timings)
    write_text(args.output, table.to_csv(index=False))
    print("[time] where the time went (seconds, all jobs of a stage together)")
    print(table.to_string(index=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
