"""Configuration, paths and helpers that all rules share."""

import glob
import json
import os
import sys
from functools import cache
from pathlib import Path

import pandas as pd
from snakemake.exceptions import WorkflowError
from snakemake.utils import Paramspace

from methods.backend.run import dependencies, model_folder
from methods.backend.run.memory import NEEDED_MB
from methods.backend.precisions import TRAIN_PRECISIONS
from methods.backend.rollout.engines import vllm_installed
from workflows import console
from workflows.config_checks.file import check_repeated_keys, check_tier
from workflows.grid import Grid, GridError

CONFIG_FILES = [Path(path) for path in workflow.configfiles]
COMMAND_LINE = workflow.config_settings.config or {}
try:
    for path in CONFIG_FILES:
        check_repeated_keys(path)
    # `make` names the tier on the command line, which is no source of a fault.
    given = [*map(str, CONFIG_FILES), *(["--config"] if set(COMMAND_LINE) - {"tier"} else [])]
    GRID = Grid.check(config, origin=", ".join(given) or "--config")
    check_tier(GRID.config["tier"], CONFIG_FILES, named="tier" in COMMAND_LINE)
except GridError as error:
    raise WorkflowError(str(error))
print(GRID.summary(), file=sys.stderr)

RUNS = GRID.runs()
TOKEN_RUNS = GRID.token_runs()
TOKEN_FIRST = next(iter(TOKEN_RUNS.values()), None)
RESULTS = GRID.results
SPACE = Paramspace(pd.DataFrame(GRID.keys(), columns=["setting", "variant", "seed"]))
ALL_RUNS = list(SPACE.instance_patterns)
SCORED_RUNS = [path for path, run in RUNS.items() if GRID.source(run.setting_name).task]

# By this mark of its processes `make recover` finds jobs that a killed Snakemake has left; no input of any.
os.environ.update({"TETHER_RESULTS": os.path.abspath(RESULTS)})
console.install(logger, workflow.output_settings, config["tier"])


wildcard_constraints:
    setting=r"[^/~]+",
    variant=r"[^/~]+",
    seed=r"\d+",


def run_of(wildcards, runs=RUNS):
    return runs[GRID.path(wildcards.setting, wildcards.variant, wildcards.seed)]


def sources(*patterns):
    """Files that patterns name: when one changes, what a rule made with it is made again."""
    found = [path for pattern in patterns for path in sorted(glob.glob(pattern, recursive=True))]
    return [path for path in found if os.path.isfile(path)]


def relative(paths):
    """As Snakemake names files of this project; others stay as they are."""
    return [os.path.relpath(path) if path.is_relative_to(dependencies.ROOT) else str(path) for path in paths]


@cache
def program(*modules):
    """Files of ours that a rule's program is made of: the modules it starts, and what they import."""
    return relative(dependencies.program_files(*modules))


variants = GRID.variants


def training_inputs(wildcards, runs=RUNS):
    return training_inputs_of(run_of(wildcards, runs))


def training_inputs_of(run):
    """Model, data and reward of a training, with its program: the list that a restart point keeps to."""
    return [*setting_inputs(run.setting_name), *program(*dependencies.training_modules(run))]


@cache
def setting_inputs(setting):
    """What the trainings of a setting read; of the model, what `model_files` names before there is one."""
    run = next(run for run in (*RUNS.values(), *TOKEN_RUNS.values()) if run.setting_name == setting)
    read = relative(dependencies.files_read(run))
    beside = [path for path in read if os.path.dirname(path) != run.model]
    return sorted({f"{run.model}/config.json", *beside, *model_files(run)})


def model_files(run):
    """The files that decide what a model directory holds: of the toy model, or those of a user's that are read."""
    if GRID.config["settings"][run.setting_name].get("world"):
        return [f"{run.model}/{name}" for name in ("model.safetensors", "tokenizer.json")]
    return relative(model_folder.model_files(Path(run.model)))


def task_files(wildcards):
    """A user's own task: its YAML and Python files."""
    path = GRID.source(wildcards.setting).task.get("include_path")
    return sources(f"{path}/**/*.yaml", f"{path}/**/*.py") if path else []


def scored_checkpoints(wildcards):
    """STEP=DIR of the start and of every exported checkpoint."""
    run = run_of(wildcards)
    setting = run.setting
    steps = list(range(setting.export_every, setting.steps, setting.export_every)) if setting.export_every else []
    folder = f"{RESULTS}/runs/{SPACE.wildcard_pattern}/checkpoints".format(**dict(wildcards.items()))
    return [f"0={run.model}", *(f"{step}={folder}/step_{step}" for step in [*steps, setting.steps])]


def trained_quantisation(wildcards):
    """Checkpoints are scored as they were trained; the start too, so that a curve is of one kind."""
    return TRAIN_PRECISIONS[run_of(wildcards).setting.train_precision].quantise


def include_path(wildcards):
    path = GRID.source(wildcards.setting).task.get("include_path")
    return ["--include-path", path] if path else []


def timings(*stages, **runs_of):
    """Benchmark files of this configuration: of single jobs by name, of a rule's runs by rule=runs."""
    names = [*stages, *(f"{rule}/{run}" for rule, runs in runs_of.items() for run in runs)]
    return [f"{RESULTS}/timings/{name}.tsv" for name in names]


def folder_of(wildcards, output):
    """The folder that a program fills, from the first file it declares."""
    return os.path.dirname(output[0])


def mismatch_inputs(wildcards):
    """Model and data of the token study's first setting. Asked for before any job runs, so a missing engine is too."""
    try:
        GRID.check_engines(vllm_installed())
    except GridError as error:
        raise WorkflowError(str(error))
    if TOKEN_FIRST is None:
        raise WorkflowError(f"tier {config['tier']!r} has no token_grid, so it records no tokens; see toy.yaml for one")
    return training_inputs_of(TOKEN_FIRST)


def record_memory(wildcards):
    """MB: 1,500 for the program and the tokens' tables, and 13 copies of the model in float32.

    Weights, gradient and two moments of the training, the same of the probe's snapshot, the moments while they are put
    back, the rollout's weights of several ages, activations. The tier `real` states 8.5 GB so and was measured at 8.3.
    A model that is yet to be made is a toy's.
    """
    run = run_of(wildcards, TOKEN_RUNS)
    files = [path for path in model_files(run) if os.path.isfile(path)]
    copy = sum(map(os.path.getsize, files)) / 2**20
    if files:
        with open(f"{run.model}/config.json") as file:
            settings = json.load(file)
        # Stored in 16 bits, trained in 32.
        copy *= 2 if "16" in str(settings.get("dtype", settings.get("torch_dtype"))) else 1
    return round(1500 + 13 * copy)


def mismatch_arguments(wildcards):
    """Model, data and lengths of the token study's first setting, and as many responses as fit in memory."""
    run = TOKEN_FIRST
    given = {"model": run.model, "data": run.val_files[0], "reward": run.reward_function.path}
    given |= {"prompt-length": run.setting.prompt_length, "response-length": run.setting.response_length}
    given |= {"top-k": run.setting.top_k, **config["mismatch"]}
    engines = given.pop("engines")
    return [*(text for name, value in given.items() for text in (f"--{name}", str(value))), "--engines", *engines]
