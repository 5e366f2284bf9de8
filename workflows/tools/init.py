"""python -m workflows init: the command line of `workflows.tools.own_model`.

    python -m workflows init --model DIR --data train.parquet --val test.parquet --reward reward.py:compute_score \\
        --task NAME --include-path DIR --output mine.yaml
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

RESPONSE_LENGTH = 256


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `init`."""
    parser.add_argument("--model", required=True, help="Hugging Face folder: config, weights, tokenizer")
    parser.add_argument("--data", required=True, nargs="+", help="training prompts: parquet in verl's layout")
    parser.add_argument("--val", nargs="+", help="validation prompts; without it, the training prompts")
    parser.add_argument("--reward", required=True, metavar="FILE[:NAME]", help="NAME defaults to compute_score")
    parser.add_argument("--task", help="lm-eval task that scores the checkpoints")
    parser.add_argument("--include-path", help="folder of the task's YAML")
    parser.set_defaults(usual_response=RESPONSE_LENGTH)
    parser.add_argument("--response-length", type=int, help=f"in tokens; default {RESPONSE_LENGTH}, or what is left")
    parser.add_argument("--output", type=Path, required=True, help="YAML file to write; its name becomes the tier's")


def init(args: argparse.Namespace) -> int:
    """Run the command: 0, or 2 with one line that says what is wrong; nothing is written then."""
    # Late: `doctor` has to start where something that this needs does not.
    from methods.backend.setting import ConfigError
    from workflows.grid import GridError
    from workflows.tools.own_model import InitError, configure

    try:
        for line in configure(args):
            print(line)
    except (InitError, ConfigError, GridError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0
