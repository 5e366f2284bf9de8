"""`python -m workflows mismatch`: a toy model where none is given, and the files written."""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from pathlib import Path
from typing import Any

from eval.files import write_csv, write_text
from methods.backend.rollout.engines import NOT_INSTALLED, vllm_installed
from methods.backend.setting import ConfigError
from workflows.tools.mismatch.pairs import measure
from workflows.tools.mismatch.policies import Settings
from workflows.tools.mismatch.table import render
from workflows.tools.toy import TOY_REWARD, make_toy


def run(args: argparse.Namespace) -> int:
    """The command: measure, write mismatch.csv, mismatch_profile.csv and mismatch.txt, print the table."""
    if (args.model is None) != (args.data is None):
        print("error: --model and --data go together: give both, or none to warm-start a toy model", file=sys.stderr)
        return 2
    # Before a model is made, since this takes half a minute.
    if "vllm" in args.engines and not vllm_installed():
        print(f"error: --engines vllm: {NOT_INSTALLED}, or leave it out", file=sys.stderr)
        return 2
    names = ("prompts", "samples", "top_k", "seed", "prompt_length", "response_length")
    given: dict[str, Any] = {name: getattr(args, name) for name in names} | {"engines": tuple(args.engines)}
    try:
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
            model, data = (args.model, args.data) if args.model is not None else warm_start(Path(folder), args.kind)
            rows, profile = measure(Settings(model=model, data=data, reward=args.reward or TOY_REWARD, **given))
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    text = f"{args.model or args.kind}, before any update: K = {args.top_k}, seed {args.seed}\n\n{render(rows)}"
    write_csv(args.output / "mismatch.csv", list(rows[0]), rows)
    write_csv(args.output / "mismatch_profile.csv", list(profile[0]), profile)
    write_text(args.output / "mismatch.txt", text)
    print(text)
    return 0


def warm_start(folder: Path, kind: str, test_prompts: int = 512) -> tuple[Path, Path]:
    """The toy tier's world and model, made in a folder: (model directory, test data). About 25 seconds."""
    from workflows.world.sorting import SortingWorld
    from workflows.world.warm_start import ModelSize, Training

    world = SortingWorld(numbers=6, limit=200, train_prompts=64, test_prompts=test_prompts, seed=0)
    make_toy(folder, world, ModelSize(hidden=64, layers=2, heads=2, kind=kind), Training())
    return folder / "model", folder / "world" / "test.parquet"
