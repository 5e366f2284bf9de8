"""python -m eval compare RUN RUN | plot RESULTS METRIC: see --help of each."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from eval.files import InputError


def main(arguments: Sequence[str] | None = None) -> int:
    """0, or 2 after one line that says what is wrong."""
    parser = argparse.ArgumentParser(prog="python -m eval", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    comparing = commands.add_parser("compare", help="two runs, variants or settings: configuration and outcomes")
    comparing.add_argument("runs", type=Path, nargs=2, metavar="RUN", help=".../seed~0, .../variant~V or .../setting~S")
    comparing.add_argument("--metric", help="any recorded metric or score (default: reward, accuracy and avg@k)")
    plotting = commands.add_parser("plot", help="any recorded metric: a line for each variant, axes for each setting")
    plotting.add_argument("results", type=Path, help="a tier's folder, as results/toy")
    plotting.add_argument("metric", help="its name in metrics.jsonl or in the scores, as reward/mean")
    plotting.add_argument("--output", type=Path, required=True, help="the figure, .svg or .png")
    plotting.add_argument("--smooth", type=int, default=1, help="steps of a moving mean, odd (1: none)")
    args = parser.parse_args(arguments)
    try:
        if args.command == "compare":
            from eval.compare import compare

            first, second = args.runs
            for line in compare(first, second, args.metric):
                print(line)
        else:
            from eval.figures.metric import draw_metric

            draw_metric(args.results, args.metric, args.output, args.smooth)
    except InputError as error:
        print(f"eval {args.command}: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
