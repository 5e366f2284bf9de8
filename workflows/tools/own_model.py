"""A configuration for a model, data and reward of one's own, after every check that a run of it would make."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

import yaml

from methods.backend.run.checks import check
from methods.backend.run.data_check import load_tokenizer, prompt_tokens, read_rows, reward_scores
from methods.backend.run.model_check import model_settings, positions
from methods.backend.run_config import RunConfig
from methods.files import write_text
from workflows.grid import Grid

PROMPTS, GROUP, MINI_BATCHES, TOP_K = 32, 8, 4, 20
REPEATS, PROBLEMS = 16, 256
METHODS: dict[str, dict[str, Any]] = {"dppo_topk_kl": {}, "drpo": {}}


class InitError(ValueError):
    """An argument that no configuration can be made of; the message names it and what is allowed."""


def configure(args: argparse.Namespace) -> list[str]:
    """Check everything, write the file, and return what is to be said. Raises InitError, ConfigError, GridError."""
    output: Path = args.output
    if output.exists():
        raise InitError(f"--output = {output}: it exists; allowed is a new file")
    if bool(args.task) != bool(args.include_path):
        raise InitError("--task, --include-path: allowed are both or neither")
    tier = re.sub(r"[^A-Za-z0-9_.-]", "_", output.stem).lstrip(".-") or "mine"
    setting, tokenizer = _setting(args)
    validation = read_rows("val_files", setting["val_files"][0])
    config: dict[str, Any] = {
        "tier": tier,
        "title": f"Trust-region methods on {Path(args.model).resolve().name}",
        "settings": {"own": setting},
        "methods": METHODS,
        "grid": [{"settings": ["own"], "seeds": {"count": 1}}],
        "scoring": {"repeats": REPEATS, "problems": min(PROBLEMS, len(validation)), "seed": 0},
    }
    grid = Grid.check(yaml.safe_load(yaml.safe_dump(config)), str(output))
    runs = list(grid.runs().values())
    for run in runs:
        check(run)
    if args.task:
        _find_task(args, setting, config["scoring"])
    output.parent.mkdir(parents=True, exist_ok=True)
    write_text(
        output,
        "# Written by `python -m workflows init`; workflows/schemas/config.schema.yaml says what each key is.\n"
        + yaml.safe_dump(config, sort_keys=False),
    )
    return [*_findings(args, runs[0], tokenizer), *_next(args, output, len(runs))]


def _setting(args: argparse.Namespace) -> tuple[dict[str, Any], Any]:
    """The setting's settings, and the tokenizer with the template that it will have."""
    try:
        model = model_settings(args.model)
    except ValueError as error:
        raise InitError(f"--model = {error}") from None
    path, _, name = args.reward.partition(":")
    train = [row for file in args.data for row in read_rows("--data", file)]
    setting: dict[str, Any] = {
        "model_path": args.model,
        "train_files": list(args.data),
        "val_files": list(args.val or args.data),
        "reward_function": {"path": path, "name": name or "compute_score"},
    }
    if not _has_template(args.model):
        setting["chat_template"] = False
    files = {"train_files": setting["train_files"], "val_files": setting["val_files"]}
    prompts = min(PROMPTS, len(train) // MINI_BATCHES * MINI_BATCHES)
    if prompts == 0:
        raise InitError(f"--data: {len(train)} rows; allowed are at least {MINI_BATCHES}")
    setting |= {
        **{"lr": 1.0e-6, "prompts": prompts, "group": GROUP, "mini_batches": MINI_BATCHES, "steps": 20, "staleness": 1},
        **{"top_k": min(TOP_K, int(model["vocab_size"])), "save_every": 5, "validate_every": 5},
        **{"prompt_length": 1, "response_length": 1},
    }
    tokenizer = load_tokenizer(_run(setting), int(model["vocab_size"]))
    lengths = [
        prompt_tokens(f"{field} = {file}, row {number}", row, tokenizer)
        for field, names in files.items()
        for file in names
        for number, row in enumerate(read_rows(field, file))
    ]
    setting["prompt_length"] = max(lengths)
    limit = positions(model)
    left = args.usual_response if limit is None else limit - setting["prompt_length"]
    if left < 1:
        raise InitError(f"--data: a prompt of {setting['prompt_length']} tokens; the model has {limit} positions")
    setting["response_length"] = args.response_length or min(args.usual_response, left)
    if args.task:
        setting["task"] = {"name": args.task, "include_path": args.include_path}
    return setting, tokenizer


def _has_template(folder: str) -> bool:
    from transformers import AutoTokenizer

    try:
        return bool(AutoTokenizer.from_pretrained(folder).chat_template)
    except Exception as error:
        raise InitError(f"--model = {folder}: its tokenizer does not load ({error})") from None


def _run(setting: dict[str, Any]) -> RunConfig:
    own = {"model_path": "model", "train_files": "train_files", "val_files": "val_files"}
    fields = {name: setting[key] for key, name in own.items()} | {"reward_function": setting["reward_function"]}
    settings = {key: value for key, value in setting.items() if key not in (*own, "reward_function", "task")}
    method = next(iter(METHODS))
    return RunConfig.build(
        {"variant": method, "method": method, "seed": 0, "output": "", "setting": settings, **fields}
    )


def _find_task(args: argparse.Namespace, setting: dict[str, Any], scoring: dict[str, Any]) -> None:
    """As scoring will find it: its name, filter and sampling settings."""
    from eval.files import InputError
    from eval.harness import RepeatedTask, quiet

    quiet()
    try:
        RepeatedTask(
            args.task,
            repeats=scoring["repeats"],
            data=Path(setting["val_files"][0]).resolve(),
            problems=scoring["problems"],
            include_path=[Path(args.include_path).resolve()],
            max_new_tokens=setting["response_length"],
        ).build()
    except (InputError, OSError) as error:
        raise InitError(f"--task = {args.task}: {error}") from None


def _findings(args: argparse.Namespace, run: RunConfig, tokenizer: Any) -> list[str]:
    model, setting = model_settings(args.model), run.setting
    train = [row for file in run.train_files for row in read_rows("train_files", file)]
    lengths = sorted(prompt_tokens("", row, tokenizer) for row in train)
    first = tokenizer.apply_chat_template(train[0]["prompt"], add_generation_prompt=True, tokenize=False)
    scores = ", ".join(f"{text!r} {score:g}" for text, score in reward_scores(run, train[0]))
    sources = sorted({str(row["data_source"]) for file in run.val_files for row in read_rows("val_files", file)})
    return [
        f"model     {model['model_type']}, {model['vocab_size']} ids, {positions(model)} positions",
        f"template  {'the tokenizer has none: contents as they are' if setting.chat_template is False else 'its own'}; "
        f"the first prompt is {_short(first)}",
        f"prompts   {len(train)}, of {lengths[0]} to {lengths[-1]} tokens (median {lengths[len(lengths) // 2]})",
        f"response  up to {setting.response_length} tokens",
        f"validated on {', '.join(sources)}" + ("" if args.val else " (the training prompts: no --val was given)"),
        f"reward    on the first row: {_short(scores, 160)}",
        f"scored    by {args.task}" if args.task else "scored    not at all: no --task was given",
    ]


def _next(args: argparse.Namespace, output: Path, runs: int) -> list[str]:
    return [
        f"wrote {output}: {runs} runs; lr, prompts, group and steps are a start, not a recommendation",
        f"next: snakemake --cores 2 --workflow-profile workflows/profiles/local --configfile {output}",
    ]


def _short(text: str, limit: int = 100) -> str:
    shown = repr(text) if "\n" in text else text
    return shown if len(shown) <= limit else f"{shown[:limit]}..."
