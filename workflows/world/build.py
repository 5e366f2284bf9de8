"""Write a world to disk: train.parquet, test.parquet (verl's layout), tokenizer/, world.json.

python -m workflows.world.build --settings JSON --output DIR
"""

from __future__ import annotations

from methods.backend import environment  # noqa: F401  # isort: skip  # before anything imports torch

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from workflows.files import atomic_folder
from workflows.world import tokens
from workflows.world.sorting import DATA_SOURCE, SortingWorld, WorldError, answer, question


def rows(problems: np.ndarray, split: str) -> list[dict[str, Any]]:
    """verl's row per prompt."""
    return [
        {
            "data_source": DATA_SOURCE,
            "prompt": [{"role": "user", "content": question(numbers)}],
            "ability": "sorting",
            "reward_model": {"style": "rule", "ground_truth": answer(numbers)},
            "extra_info": {"split": split, "index": index},
        }
        for index, numbers in enumerate(problems)
    ]


def write(world: SortingWorld, output: Path) -> None:
    """Write all files; the folder appears complete or not at all."""
    train, test = world.problems()
    with atomic_folder(output) as folder:
        for split, problems in (("train", train), ("test", test)):
            pd.DataFrame(rows(problems, split)).to_parquet(folder / f"{split}.parquet", index=False)
        tokens.save(world, folder / "tokenizer")
        (folder / "world.json").write_text(json.dumps(vars(world), indent=1, sort_keys=True) + "\n")


def load(folder: Path) -> SortingWorld:
    """The world of a folder that `write` made."""
    return SortingWorld(**json.loads((folder / "world.json").read_text()))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m workflows.world.build", description=__doc__)
    parser.add_argument("--settings", required=True, help="JSON object of a SortingWorld")
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    try:
        write(SortingWorld(**json.loads(args.settings)), args.output)
    except (WorldError, TypeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
