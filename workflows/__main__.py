"""python -m workflows doctor | init | status | plan | bench | soak | fuzz | mismatch | recover | lint: see --help."""

from __future__ import annotations

from methods.backend import environment  # noqa: F401  # isort: skip  # before anything imports torch

import argparse
import sys
from pathlib import Path

from workflows.tools.init import add_arguments, init


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m workflows", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("doctor", help="versions, plugin registration, threads, disk, extras")
    add_arguments(commands.add_parser("init", help="write a configuration for a model, data and reward of your own"))
    bench = commands.add_parser("bench", help="a step of verl's trainer against bare PyTorch")
    bench.add_argument("--steps", type=int, default=12)
    bench.add_argument("--larger", action="store_true", help="a model of the next size: 4 layers, width 128")
    soaking = commands.add_parser("soak", help="kill a training at random moments; it must end as if left alone")
    soaking.add_argument("--kills", type=int, default=20)
    soaking.add_argument("--seed", type=int, default=0)
    soaking.add_argument("--runner", choices=("inprocess", "ray", "server"), default="inprocess")
    fuzzing = commands.add_parser("fuzz", help="random faults in a configuration; each must be refused in one line")
    fuzzing.add_argument("--count", type=int, default=2000)
    fuzzing.add_argument("--seed", type=int, default=0)
    mismatch = commands.add_parser("mismatch", help="gap between trainer and rollout for every pair of precisions")
    mismatch.add_argument("--output", type=Path, default=Path("results/mismatch"), help="folder of the table")
    mismatch.add_argument("--kind", choices=("qwen3", "qwen3_moe"), default="qwen3", help="toy model to warm-start")
    mismatch.add_argument("--model", type=Path, help="a model of your own, with --data; else one is warm-started")
    mismatch.add_argument("--data", type=Path, help="parquet in verl's layout")
    mismatch.add_argument("--reward", type=Path, help="Python file of its reward; the default is the toy world's")
    mismatch.add_argument(
        "--engines", nargs="+", choices=("hf", "vllm"), default=["hf"], help="of rollouts; vllm needs `make vllm`"
    )
    for name, default in (("prompts", 64), ("samples", 8), ("top-k", 20), ("seed", 0)):
        mismatch.add_argument(f"--{name}", type=int, default=default)
    for name, default in (("prompt-length", 8), ("response-length", 7)):
        mismatch.add_argument(f"--{name}", type=int, default=default, help="tokens; the default is the toy world's")
    bench.add_argument("--rollouts", action="store_true", help="instead: vLLM against transformers (needs `make vllm`)")
    bench.add_argument("--engines", action="store_true", help="instead: every engine, runner and precision (5 minutes)")
    bench.add_argument("--full", action="store_true", help="with --engines: every precision on Ray too (12 minutes)")
    bench.add_argument("--vocabulary", action="store_true", help="instead: the vocabulary pass against torch and verl")
    bench.add_argument(
        "--coefficients", action="store_true", help="instead: the coefficient functions' share of a step"
    )
    bench.add_argument("--replay", action="store_true", help="instead: replay a synthetic token record")
    bench.add_argument("--tokens", type=int, default=1_000_000, help="of --replay")
    bench.add_argument("--sequences", type=int, default=64, help="of --vocabulary, 512 tokens each; 64 need 9 GB")
    recovering = commands.add_parser("recover", help="end the jobs that a killed Snakemake has left running")
    recovering.add_argument("--results", type=Path, required=True, help="the tier's folder, as results/toy")
    linting = commands.add_parser("lint", help="the workflow's lints against the accepted ones")
    linting.add_argument("--configfile", action="append", required=True, help="a configuration (repeatable)")
    telling = commands.add_parser("status", help="how a tier's runs stand, also while it runs and after a kill")
    whose = telling.add_mutually_exclusive_group()
    whose.add_argument("--tier", help="a configuration by its name or path (default toy)")
    whose.add_argument("--results", type=Path, help="instead: a tier's folder, as results/toy; reads no configuration")
    telling.add_argument("--tokens", action="store_true", help="instead of the grid: the token study's runs")
    planning = commands.add_parser("plan", help="a tier's runs, core-hours and disk, and a machine's share of it")
    planning.add_argument("tier", help="a configuration by its name or path")
    planning.add_argument("--shard", help="i/n: machine i of n")
    planning.add_argument("--cores", type=int, default=2, help="of the command line that is printed")
    args = parser.parse_args(arguments)
    if args.command == "status":
        from workflows.status import status

        return status(args.tier, args.results, args.tokens)
    if args.command == "plan":
        from workflows.plan import plan

        return plan(args.tier, args.shard, args.cores)
    if args.command == "recover":
        from workflows.tools.recover import recover

        return recover(args.results)
    if args.command == "lint":
        from workflows.tools.lint import check

        return check(args.configfile)
    if args.command == "mismatch":
        from workflows.tools.mismatch.command import run

        return run(args)
    if args.command == "fuzz":
        from workflows.tools.fuzz_config import fuzz

        return fuzz(args.count, args.seed)
    if args.command == "init":
        return init(args)
    if args.command == "doctor":
        from workflows.tools.doctor import examine

        return examine()
    if args.command == "soak":
        from workflows.tools.soak import soak

        return soak(args.kills, args.seed, args.runner)
    if args.engines:
        from workflows.tools.bench.engines import measure_engines

        return measure_engines(min(args.steps, 4), args.full)
    if args.rollouts:
        from workflows.tools.bench.rollouts import measure_rollouts

        return measure_rollouts(args.steps)
    if args.coefficients:
        from workflows.tools.bench.coefficients import measure_coefficients

        return measure_coefficients(args.steps)
    if args.vocabulary:
        from workflows.tools.bench.vocabulary import measure_vocabulary

        return measure_vocabulary(args.sequences)
    if args.replay:
        from workflows.tools.bench.replay import measure_replay

        return measure_replay(args.tokens)
    from workflows.tools.bench.step import measure

    return measure(args.steps, args.larger)


if __name__ == "__main__":
    sys.exit(main())
