"""python -m workflows doctor | bench: check an installation, or measure the trainer."""

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
    bench.add_argument("--rollouts", action="store_true", help="instead: vLLM against transformers (needs `make vllm`)")
    args = parser.parse_args(arguments)
    if args.command == "doctor":
        from workflows.doctor import examine

        return examine()
    if args.rollouts:
        from workflows.bench_rollouts import measure_rollouts

        return measure_rollouts(args.steps)
    from workflows.bench import measure

    return measure(args.steps)


if __name__ == "__main__":
    sys.exit(main())
