"""The command line and the small print that the figures without input files share."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

from eval.files import InputError


def run(name: str, summary: str, draw: Callable[[Path, int], None], arguments: Sequence[str] | None = None) -> int:
    """Parse --output and --seed and draw; 0, or 2 after one line that says what is wrong."""
    parser = argparse.ArgumentParser(prog=f"python -m eval.figures.{name}", description=summary)
    parser.add_argument("--output", type=Path, required=True, help=f"{name}.svg")
    parser.add_argument("--seed", type=int, default=0, help="of the synthetic rows, where the figure has some (0)")
    args = parser.parse_args(arguments)
    if args.seed < 0:
        parser.error(f"--seed is {args.seed}, allowed are 0 and above")
    try:
        draw(args.output, args.seed)
    except InputError as error:
        print(f"eval.figures.{name}: error: {error}", file=sys.stderr)
        return 2
    return 0


def small_print(text: str, inches: float) -> str:
    """`text` broken into lines that fit below a figure of this width (9 pt: about 13.5 characters an inch)."""
    return textwrap.fill(text, int(13.5 * inches), break_on_hyphens=False)
