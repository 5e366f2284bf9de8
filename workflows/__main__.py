"""python -m workflows doctor | bench | soak: check an installation, measure the trainer, kill it at random."""

from __future__ import annotations

from methods.backend import environment  # noqa: F401  # isort: skip  # before anything imports torch

import argparse
import sys


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m workflows", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("doctor", help="versions, plugin registration, threads, disk, extras")
    bench = commands.add_parser("bench", help="a step of verl's trainer against a minimal loop over the same worker")
    bench.add_argument("--steps", type=int, default=12)
    soaking = commands.add_parser("soak", help="kill a training at random moments; it must end as if left alone")
    soaking.add_argument("--kills", type=int, default=20)
    soaking.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(arguments)
    if args.command == "doctor":
        from workflows.doctor import examine

        return examine()
    if args.command == "soak":
        from workflows.soak import soak

        return soak(args.kills, args.seed)
    from workflows.bench import measure

    return measure(args.steps)


if __name__ == "__main__":
    sys.exit(main())
