"""Collect what a tier was made from: configuration, versions, and what each training's worker really ran.

python -m workflows.scripts.manifest --config JSON --output FILE RUN_MANIFEST...
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from methods.files import write_text


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m workflows.scripts.manifest", description=__doc__, fromfile_prefix_chars="@"
    )
    parser.add_argument("--config", type=Path, required=True, help="JSON file of the configuration")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("runs", type=Path, nargs="+")
    args = parser.parse_args()
    manifests = [json.loads(path.read_text()) for path in args.runs]
    versions = {json.dumps(m["versions"], sort_keys=True) for m in manifests}
    if len(versions) > 1:
        print("error: the runs were made with different package versions; remove and re-run the older", file=sys.stderr)
        return 2
    collected = {
        "config": json.loads(args.config.read_text()),
        "versions": manifests[0]["versions"],
        "runs": {
            f"{m['run']['setting_name']}/{m['run']['variant']}/{m['run']['seed']}": m["worker"] for m in manifests
        },
    }
    write_text(args.output, json.dumps(collected, indent=1, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
