"""Score checkpoints on a task with lm-eval: several checkpoints, one process, one set of imports.

    python -m eval.score --checkpoint 0=DIR --checkpoint 70=DIR --data test.parquet --task sort \\
        --repeats 16 --problems 256 --seed 0 --batch-size 512 \\
        --output scores.json --samples samples.jsonl --timing timing.json

Every checkpoint is sampled from the same seed, so its scores do not depend on which others are scored with it.
Scores and samples hold no time, host or path: the same command gives the same bytes. `--timing` holds those.
A checkpoint may be any Hugging Face model folder; the task any YAML below `--include-path` that keeps to
`eval.tasks.repeats`. Sampling draws depend on the batch size, so that is part of the recorded settings.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import math
import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval.files import InputError, read_json, require_file, sha256, write_json, write_jsonl
from eval.metrics import (
    avg_at_k,
    candidates,
    majority,
    pass_at_k_per_problem,
    standard_error,
    std_between_runs,
    std_per_problem,
    stderr_avg_at_k,
)
from eval.tasks.repeats import PASS_AT

if TYPE_CHECKING:
    from eval.harness import CheckpointLM, ProblemResult

SCHEMA = 1
VERSIONS = ("lm_eval", "torch", "transformers")
SAMPLING = ("temperature", "top_p")
LARGEST_SEED = 2**32 - 1  # numpy's


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line; see the module docstring."""
    parser = argparse.ArgumentParser(prog="python -m eval.score", description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--checkpoint", action="append", required=True, metavar="STEP=DIR", help="repeat for several")
    add("--data", type=Path, required=True, help="test parquet in verl's format")
    add("--task", required=True, help="task name, e.g. sort")
    add("--include-path", type=Path, action="append", default=[], help="folder with task YAMLs of your own")
    add("--repeats", type=int, default=16, help="samples per problem (default 16)")
    add("--pass-at", type=int, nargs="+", default=list(PASS_AT), help="the k of pass@k (default 1 4 16)")
    add("--problems", type=int, default=256, help="first so many rows of the data (default 256)")
    add("--seed", type=int, required=True)
    add("--batch-size", type=int, default=512)
    add("--max-new-tokens", type=int, help="overrides the task's own limit")
    add("--temperature", type=float, help="overrides the task's own")
    add("--top-p", type=float, help="overrides the task's own")
    add("--prompt", choices=("chat", "plain"), default="chat", help="render with the chat template or not")
    add("--dtype", choices=("float32", "bfloat16", "float16"), default="float32")
    add(
        "--quantise",
        choices=("none", "fp8", "int8"),
        default="none",
        help="compute W8A8 by fake quantisation: for what was trained so (a checkpoint's tether.json says)",
    )
    add("--device", default="cpu")
    add("--threads", type=int, default=1, help="torch threads (default 1)")
    add("--output", type=Path, required=True, help="scores.json")
    add("--samples", type=Path, required=True, help="samples.jsonl, one row per checkpoint and problem")
    add("--timing", type=Path, required=True, help="timing.json: seconds, host, paths")
    return parser.parse_args(arguments)


def parse_checkpoints(texts: Sequence[str]) -> dict[int, Path]:
    """{step: folder}, by step. InputError for a bad pair, a repeated step, a folder that holds no model."""
    checkpoints: dict[int, Path] = {}
    for text in texts:
        step, separator, folder = text.partition("=")
        if not separator or not step.isdecimal() or not folder:
            raise InputError(f"--checkpoint {text!r}: expected STEP=DIR, e.g. 70=checkpoints/step_70")
        if int(step) in checkpoints:
            raise InputError(f"--checkpoint {text!r}: step {int(step)} is given twice")
        path = Path(folder)
        if not path.is_dir():
            raise InputError(f"--checkpoint {text!r}: no such folder: {path}")
        require_file(path / "config.json", f"--checkpoint {text!r}")
        checkpoints[int(step)] = path
    return dict(sorted(checkpoints.items()))


def check_arguments(args: argparse.Namespace) -> None:
    """Refuse what cannot be scored, before the seconds of imports."""
    require_file(args.data, "--data")
    for name in ("repeats", "problems", "batch_size", "threads"):
        if getattr(args, name) < 1:
            raise InputError(f"--{name.replace('_', '-')} must be at least 1, got {getattr(args, name)}")
    if min(args.pass_at) < 1 or args.repeats < max(args.pass_at):
        raise InputError(f"--repeats {args.repeats} is too few for --pass-at {args.pass_at}: needs 1 <= k <= repeats")
    if not 0 <= args.seed <= LARGEST_SEED:
        raise InputError(f"--seed {args.seed}: allowed is 0 to {LARGEST_SEED}")
    if args.temperature is not None and not 0 < args.temperature < math.inf:
        raise InputError(f"--temperature {args.temperature}: allowed is a number above 0")
    if args.top_p is not None and not 0 < args.top_p <= 1:
        raise InputError(f"--top-p {args.top_p}: allowed is a number above 0, at most 1")
    for folder in args.include_path:
        if not folder.is_dir():
            raise InputError(f"--include-path: no such folder: {folder}")
    rows = _rows(args.data)
    if rows is not None and args.problems > rows:
        raise InputError(f"--data: {args.data} has {rows} rows, {args.problems} problems were asked for")


def _rows(data: Path) -> int | None:
    """Rows of a parquet file, from its footer; None for a file of another kind, which the task reads itself."""
    if data.suffix != ".parquet":
        return None
    from pyarrow import ArrowException, parquet

    try:
        return int(parquet.read_metadata(data).num_rows)
    except (ArrowException, OSError) as error:
        raise InputError(f"--data: {data} is not a parquet file: {error}") from error


def check_positions(checkpoints: Mapping[int, Path], response: int) -> None:
    """Refuse responses that do not fit into a checkpoint's positions, before any model is loaded."""
    from eval.harness import check_room

    for step, path in checkpoints.items():
        config = read_json(path / "config.json", f"--checkpoint {step}={path}")
        positions = config.get("max_position_embeddings") if isinstance(config, dict) else None
        if isinstance(positions, int):
            check_room(response, positions, f"--checkpoint {step}={path}")


def summarise(results: Sequence[ProblemResult], pass_at: Sequence[int]) -> dict[str, dict[str, Any]]:
    """{metric: {value, stderr, n}}; stderr is over the n problems, None where it is not defined."""
    outcomes = [result.outcomes for result in results]
    n, repeats = len(outcomes), len(outcomes[0])
    voted = [int(_majority(result)[1]) for result in results]
    unanswered = [sum(a is None for a in result.answers) / repeats for result in results]
    values: dict[str, tuple[float, float | None]] = {
        f"avg@{repeats}": (avg_at_k(outcomes), stderr_avg_at_k(outcomes)),
        f"maj@{repeats}": (sum(voted) / n, standard_error(voted)),
        "no_answer": (sum(unanswered) / n, standard_error(unanswered)),
        f"std_between_runs@{repeats}": (std_between_runs(outcomes), None),
        f"std_per_problem@{repeats}": (std_per_problem(outcomes), None),
    }
    for k in sorted(set(pass_at)):
        passed = pass_at_k_per_problem(outcomes, k)
        values[f"pass@{k}"] = (sum(passed) / n, standard_error(passed))
    return {
        name: {"value": value, "stderr": None if error is None or error != error else error, "n": n}
        for name, (value, error) in values.items()
    }


def _majority(result: ProblemResult) -> tuple[str | None, bool]:
    winner = majority(candidates(result.outcomes, result.answers))
    return winner, winner is not None and bool(result.outcomes[result.answers.index(winner)])


def sample_rows(step: int, results: Sequence[ProblemResult]) -> list[dict[str, Any]]:
    """One row per problem, from which every score can be recomputed and paired by problem."""
    rows = []
    for result in results:
        winner, right = _majority(result)
        row = {"step": step, "problem": result.problem, "outcomes": list(result.outcomes), "majority": winner}
        rows.append({**row, "majority_outcome": int(right), "no_answer": result.answers.count(None)})
    return rows


def _check_against_lm_eval(results: Sequence[ProblemResult], avg: float) -> None:
    reported = [result.average for result in results if result.average is not None]
    if len(reported) == len(results) and abs(sum(reported) / len(reported) - avg) > 1e-9:
        raise InputError(f"lm-eval's avg@k {sum(reported) / len(reported)} is not the one of the outcomes, {avg}")


def score(args: argparse.Namespace) -> None:
    """Score all checkpoints of the command line and write the three files."""
    checkpoints = parse_checkpoints(args.checkpoint)
    check_arguments(args)
    os.environ.setdefault("TQDM_DISABLE", "1")  # read by tqdm at import
    begun, start = datetime.now(UTC), time.perf_counter()
    import torch

    from eval import harness

    harness.quiet()
    torch.set_num_threads(args.threads)
    timing: dict[str, Any] = {
        "started": begun.isoformat(),
        "host": platform.node(),
        "import_seconds": time.perf_counter() - start,
        "checkpoints": [],
    }
    task = harness.RepeatedTask(
        args.task,
        repeats=args.repeats,
        data=args.data,
        problems=args.problems,
        include_path=args.include_path,
        max_new_tokens=args.max_new_tokens,
        sampling={name: value for name in SAMPLING if (value := getattr(args, name)) is not None},
    )
    check_positions(checkpoints, task.response_length())
    entries: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    sampling: dict[str, Any] = {}
    for number, (step, path) in enumerate(checkpoints.items(), start=1):
        start = time.perf_counter()
        _compare_with_training(path, args.quantise)
        lm = harness.CheckpointLM(
            path, batch_size=args.batch_size, dtype=args.dtype, device=args.device, quantise=args.quantise
        )
        loaded = time.perf_counter()
        results = harness.answer_problems(lm, task, seed=args.seed, chat=args.prompt == "chat")
        metrics = summarise(results, args.pass_at)
        avg = metrics[f"avg@{args.repeats}"]["value"]
        _check_against_lm_eval(results, avg)
        sampling = _same_sampling(sampling, lm)
        entries.append({"step": step, "metrics": metrics})
        rows += sample_rows(step, results)
        seconds = time.perf_counter() - start
        timing["checkpoints"].append(
            {
                "step": step,
                "path": str(path.resolve()),
                "seconds": seconds,
                "load_seconds": loaded - start,
                "generate_seconds": lm.generate_seconds,
            }
        )
        done = f"checkpoint {number} of {len(checkpoints)}, step {step}"
        print(f"score: {done}: avg@{args.repeats} {avg:.3f}, {seconds:.1f} s", file=sys.stderr)
    write_jsonl(args.samples, rows)
    write_json(args.timing, timing)
    write_json(args.output, {**_settings(args), "sampling": sampling, "checkpoints": entries})


def _same_sampling(before: dict[str, Any], lm: CheckpointLM) -> dict[str, Any]:
    """The settings that generate() really got; they must be one set for all checkpoints of a file."""
    if before and before != lm.effective:
        raise InputError(f"{lm.pretrained}: sampling settings {lm.effective} differ from the others' {before}")
    return dict(lm.effective)


def _compare_with_training(path: Path, quantise: str) -> None:
    """Say where a checkpoint is scored in another precision than it was trained in, which may be meant."""
    record = path / "tether.json"
    if not record.is_file():
        return  # a warm start, or a model that was not trained here
    trained = read_json(record, f"--checkpoint {path}").get("train_precision", {}).get("quantise", "none")
    if trained != quantise:
        print(f"score: {path}: trained with quantise {trained}, scored with --quantise {quantise}", file=sys.stderr)


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "task": args.task,
        "data": {"file": args.data.name, "sha256": sha256(args.data), "problems": args.problems},
        "repeats": args.repeats,
        "seed": args.seed,
        "batch_size": args.batch_size,
        "prompt": args.prompt,
        "dtype": args.dtype,
        "quantise": args.quantise,
        "device": args.device,
        "threads": args.threads,
        "versions": {name: importlib.metadata.version(name) for name in VERSIONS},
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; 0, or 2 after one line that says what is wrong."""
    try:
        score(parse_arguments(arguments))
    except InputError as error:
        print(f"eval.score: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
