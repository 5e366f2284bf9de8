"""From a validated configuration to runs: which trainings there are, what each reads, and where its files lie."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eval.method_checks.check import run
from eval.variants import distinct_titles
from methods import registry
from methods.backend import renamed
from methods.backend.requirements import vocabulary_problem
from methods.backend.rollout.engines import NOT_INSTALLED
from methods.backend.run.data_check import path_problem
from methods.backend.run.model_check import folder_problem, length_problem
from methods.backend.run_config import RunConfig
from methods.backend.setting import ConfigError
from methods.config import MethodConfigError
from workflows.config_checks import sweep
from workflows.config_checks.task import task_problem
from workflows.config_checks.values import NUMBER_HINT, GridError, check_values, not_known, reads_as_number, shown
from workflows.world import REWARD

SOURCE_FIELDS = ("world", "model", "warm_start_seed", "model_path", "train_files", "val_files", "reward_function")
REFERENCE = "dppo_topk_kl"
# Snakemake reads them in a path as wildcards and patterns.
PATTERN = "{}[]*?"
# Snakemake plans so many jobs in minutes; a larger number is a slip of the hand.
MOST_RUNS = 10_000
__all__ = ["Grid", "GridError", "Source"]


@dataclass(frozen=True)
class Source:
    """What a setting's trainings start from: a model directory, parquet files, a reward, and a task to score with."""

    model: str
    train_files: list[str]
    val_files: list[str]
    reward_function: dict[str, str]
    task: dict[str, Any]


@dataclass(frozen=True)
class Grid:
    """The trainings of one configuration; `origin` names the configuration in messages."""

    config: Mapping[str, Any]
    origin: str
    _runs: dict[str, dict[str, RunConfig]] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def check(cls, config: dict[str, Any], origin: str) -> Grid:
        """Validate a configuration and every run of it; fills in the schema's defaults. Raises GridError."""
        if (old := renamed.old_key(config)) is not None:
            raise GridError(f"{origin}: {old}")
        check_values(config, origin)
        sweep.expand(config, origin)
        known, wanted = list(config["methods"]), config.get("reference")
        if wanted is not None and wanted not in known:
            raise GridError(f"{origin}: {not_known('reference', wanted, 'methods', known)}")
        config.setdefault("reference", REFERENCE if REFERENCE in known else known[0])
        grid = cls(config, origin)
        for problems in (grid._wrong_worlds(), grid._wrong_models(), grid._wrong_methods(), grid._too_many_runs()):
            for problem in problems:
                raise GridError(f"{origin}: {problem}")
        grid.runs()
        grid.token_runs()
        grid.check_scoring()
        return grid

    @property
    def results(self) -> str:
        """Folder of this tier's results."""
        return f"results/{self.config['tier']}"

    def keys(self, section: str = "grid") -> list[tuple[str, str, int]]:
        """(setting, variant, seed) of every run of `grid` or `token_grid`, in order, without repeats."""
        found: dict[tuple[str, str, int], None] = {}
        for i, block in enumerate(self.config[section]):
            variants = list(self.config["methods"]) if block["methods"] == "all" else block["methods"]
            seeds = block["seeds"] if isinstance(block["seeds"], list) else range(block["seeds"]["count"])
            for setting in block["settings"]:
                self._require(f"{section}[{i}].settings", setting, "settings")
                for variant in variants:
                    self._require(f"{section}[{i}].methods", variant, "methods")
                    for seed in seeds:
                        found[(setting, variant, seed)] = None
        return list(found)

    def runs(self) -> dict[str, RunConfig]:
        """{place below runs/: run} of every training of `grid`, each built and checked once. Raises GridError."""
        return self._built("grid", "runs", "work")

    def token_runs(self) -> dict[str, RunConfig]:
        """{place below tokens/: run} of the token study. Raises GridError where a setting records no tokens."""
        return self._built("token_grid", "tokens", "work_tokens")

    def _built(self, section: str, folder: str, work: str) -> dict[str, RunConfig]:
        if section not in self._runs:
            keys = self.keys(section)
            for setting in dict.fromkeys(key[0] for key in keys if section == "token_grid"):
                if self.config["settings"][setting].get("tokens") is None:
                    raise GridError(
                        f"{self.origin}: settings.{setting}.tokens is missing, and token_grid names this setting"
                    )
            self._runs[section] = {self.path(*key): self.run_config(*key, folder=folder, work=work) for key in keys}
        return self._runs[section]

    def path(self, setting: str, variant: str, seed: int | str) -> str:
        """A run's place below runs/ and scores/."""
        return f"setting~{setting}/variant~{variant}/seed~{seed}"

    def source(self, setting: str) -> Source:
        """Where a setting's model and data come from. Raises GridError."""
        given = self.config["settings"][setting]
        own = [name for name in ("model_path", "train_files", "val_files", "reward_function") if name in given]
        toy = [name for name in ("world", "model") if name in given]
        if own and toy:
            raise GridError(
                f"{self.origin}: settings.{setting} has both {toy[0]!r} and {own[0]!r}: allowed is one kind"
            )
        if own:
            return self._own_source(setting, given)
        for name, section in (("world", "worlds"), ("model", "models")):
            if name not in given:
                raise GridError(f"{self.origin}: settings.{setting}.{name} is missing (or give model_path and data)")
            self._require(f"settings.{setting}.{name}", given[name], section)
        world = f"{self.results}/worlds/{given['world']}"
        return Source(
            model=f"{self.results}/warm_starts/{self.warm_start(setting)}",
            train_files=[f"{world}/train.parquet"],
            val_files=[f"{world}/test.parquet"],
            reward_function={"path": REWARD, "name": "compute_score"},
            task={"name": "sort"},
        )

    def _own_source(self, setting: str, given: Mapping[str, Any]) -> Source:
        for name in ("model_path", "train_files", "val_files", "reward_function"):
            if name not in given:
                raise GridError(f"{self.origin}: settings.{setting}.{name} is missing beside your own model or data")
        paths = {"model_path": [given["model_path"]], "reward_function.path": [given["reward_function"]["path"]]}
        paths |= {name: given[name] for name in ("train_files", "val_files")}
        paths |= {"task.include_path": [given["task"]["include_path"]]} if "task" in given else {}
        for name, values in paths.items():
            kind = "directory" if name in ("model_path", "task.include_path") else "file"
            for value in values:
                where = f"{self.origin}: settings.{setting}.{name} = {shown(value, bare=True)}"
                if set(value) & set(PATTERN):
                    raise GridError(f"{where}: allowed is a path without {' '.join(PATTERN)}, which read as a pattern")
                if not os.path.exists(value):
                    raise GridError(f"{where}: no such file or directory")
                if os.path.isdir(value) != (kind == "directory"):
                    raise GridError(f"{where}: allowed is a {kind}")
                problem = {"model_path": folder_problem, "train_files": path_problem, "val_files": path_problem}.get(
                    name
                )
                if problem is not None and (wrong := problem(value)) is not None:
                    raise GridError(f"{self.origin}: settings.{setting}.{name} = {wrong}")
        return Source(
            model=given["model_path"],
            train_files=list(given["train_files"]),
            val_files=list(given["val_files"]),
            reward_function=dict(given["reward_function"]),
            task=dict(given.get("task", {})),
        )

    def check_scoring(self) -> None:
        """What lm-eval can score. Raises GridError."""
        scoring = self.config["scoring"]
        for setting in dict.fromkeys(key[0] for key in self.keys()):
            given = self.config["settings"][setting]
            where = f"{self.origin}: settings.{setting}"
            if "world" in given and "task" in given:
                raise GridError(f"{where}.task: a toy setting has its own; allowed with model_path")
            if "world" in given:
                rows = self.config["worlds"][given["world"]]["test_prompts"]
                whose = f"worlds.{given['world']}.test_prompts = {rows}"
            elif "task" in given:
                template = given.get("chat_template")
                if template is not None:
                    raise GridError(
                        f"{where}.chat_template = {template!r}: allowed is null where a task scores, since scoring "
                        "renders with the model folder's own (put the template there)"
                    )
                if len(given["val_files"]) > 1:
                    raise GridError(f"{where}.val_files: allowed is one file where a task scores it")
                wrong = task_problem(given["task"]["name"], given["task"]["include_path"], scoring["repeats"])
                if wrong is not None:
                    raise GridError(f"{where}.{wrong}")
                rows = self._rows(setting, given["val_files"][0])
                whose = f"the {rows} rows of settings.{setting}.val_files"
            else:
                continue
            if scoring["problems"] > rows:
                raise GridError(f"{self.origin}: scoring.problems = {scoring['problems']}: allowed is at most {whose}")

    def _rows(self, setting: str, path: str) -> int:
        # Imported here: a toy grid needs no parquet reader to be checked.
        import pyarrow.parquet as pq

        try:
            return int(pq.read_metadata(path).num_rows)
        except (OSError, ValueError) as error:
            told = " ".join(str(error).split())
            raise GridError(
                f"{self.origin}: settings.{setting}.val_files = {path}: not a readable parquet file ({told})"
            ) from None

    def check_engines(self, vllm: bool) -> None:
        """Whether the mismatch figure's rollouts can be had; vllm: is it installed? Raises GridError."""
        if "vllm" in self.config["mismatch"]["engines"] and not vllm:
            raise GridError(f"{self.origin}: mismatch.engines = 'vllm': {NOT_INSTALLED}, or leave it out")

    def warm_start(self, setting: str) -> str:
        """Name of the toy model that a setting starts from."""
        given = self.config["settings"][setting]
        return f"{given['model']}-{given['world']}-ws{given['warm_start_seed']}"

    def run_config(self, setting: str, variant: str, seed: int, folder: str = "runs", work: str = "work") -> RunConfig:
        """A checked run; its results go below `folder`, a running training below `work`.

        Raises GridError naming setting and method.
        """
        given = {k: v for k, v in self.config["settings"][setting].items() if k not in (*SOURCE_FIELDS, "task")}
        overrides = given.pop("overrides", [])
        method = self.config["methods"][variant]
        source, where = self.source(setting), self.path(setting, variant, seed)
        world = self.config["worlds"].get(self.config["settings"][setting].get("world"))
        if world is not None:
            given.setdefault("prompt_length", world["numbers"] + 2)
            given.setdefault("response_length", world["numbers"] + 1)
            wrong = _world_problem(given, world)
            if wrong is not None:
                raise GridError(
                    f"{self.origin}: settings.{setting}.{wrong} {self.config['settings'][setting]['world']}"
                )
            # Else `5 <sep> 7` would be read, and paid, as `5 7`.
            given.setdefault("reward_special_tokens", True)
            vocabulary = world["limit"] + 5
        try:
            run = RunConfig.build(
                {
                    "variant": variant,
                    "method": method.get("method", variant),
                    "options": method.get("options", {}),
                    "seed": seed,
                    "setting": given,
                    "setting_name": setting,
                    "model": source.model,
                    "train_files": source.train_files,
                    "val_files": source.val_files,
                    "reward_function": source.reward_function,
                    "overrides": overrides,
                    "trackers": self.config["trackers"],
                    "output": f"{self.results}/{folder}/{where}",
                    "work": f"{self.results}/{work}/{where}",
                }
            )
        except ConfigError as error:
            raise GridError(f"{self.origin}: settings.{setting}, methods.{variant}: {error}") from None
        wrong = None if world is None else vocabulary_problem(run.method, run.needs, run.setting.top_k, vocabulary)
        if wrong is not None:
            raise GridError(f"{self.origin}: settings.{setting}.{wrong}")
        if world is None:
            config = json.loads(Path(source.model, "config.json").read_text())
            wrong = length_problem(config, run.setting.prompt_length, run.setting.response_length)
            if wrong is not None:
                raise GridError(f"{self.origin}: settings.{setting}.{wrong}")
        return run

    def variants(self) -> dict[str, dict[str, Any]]:
        """{variant: title, provenance, options} of the configuration's methods in their order, for tables and
        figures."""
        out = {}
        for variant, given in self.config["methods"].items():
            method = registry.get(given.get("method", variant))
            out[variant] = {
                "title": given.get("title", method.title),
                "mark": method.mark,
                "source": method.source,
                "options": dict(vars(method.configure(given.get("options")))),
            } | {key: given[key] for key in ("colour",) if key in given}
        titles = distinct_titles(out)
        return {variant: entry | {"title": titles[variant]} for variant, entry in out.items()}

    def size(self, section: str) -> int:
        """How many runs a section asks for; a run that two blocks name counts twice."""
        total = 0
        for block in self.config[section]:
            methods = self.config["methods"] if block["methods"] == "all" else block["methods"]
            seeds = block["seeds"]
            number = len(seeds) if isinstance(seeds, list) else seeds["count"]
            total += len(block["settings"]) * len(methods) * number
        return total

    def summary(self) -> str:
        """One line: how many runs the grid has, and of what."""
        said = []
        for section, what in (("grid", ""), ("token_grid", " of the token study")):
            keys = self.keys(section)
            if keys:
                parts = zip(("setting", "method", "seed"), zip(*keys, strict=True), strict=True)
                counts = ", ".join(_count(len(set(names)), part) for part, names in parts)
                said.append(f"{_count(len(keys), 'run')}{what} ({counts})")
        return f"[grid] {self.config['tier']}: {' and '.join(said) or 'no runs'}"

    def _too_many_runs(self) -> Iterator[str]:
        for section in ("grid", "token_grid"):
            if self.size(section) > MOST_RUNS:
                size = self.size(section)
                yield f"{section}: {size} runs (settings x methods x seeds); allowed are up to {MOST_RUNS}"

    def _wrong_worlds(self) -> Iterator[str]:
        for name, world in self.config["worlds"].items():
            numbers, limit = world["numbers"], world["limit"]
            if limit < 2 * numbers:
                yield f"worlds.{name}.limit = {limit}: allowed is >= twice worlds.{name}.numbers = {2 * numbers}"
            prompts = world["train_prompts"] + world["test_prompts"]
            sets = math.comb(limit, numbers)
            if prompts > sets:
                yield (
                    f"worlds.{name}.train_prompts + test_prompts = {prompts}: allowed are at most the {sets} distinct "
                    f"sets of {numbers} numbers below {limit}"
                )

    def _wrong_methods(self) -> Iterator[str]:
        """Of every method of the configuration, since tables and figures list those of no grid too."""
        for variant, given in self.config["methods"].items():
            for name, value in given.get("options", {}).items():
                if isinstance(value, str) and reads_as_number(value):
                    yield f"methods.{variant}.options.{name} = {value!r}: allowed is a number or a word{NUMBER_HINT}"
            try:
                method = registry.get(given.get("method", variant))
                config = method.configure(given.get("options"))
            except (registry.UnknownMethodError, MethodConfigError) as error:
                yield f"methods.{variant}: {error}"
                continue
            if (wrong := run(method, config)) is not None:
                more = f"`python -m methods check {method.name}` says more"
                yield f"methods.{variant}: method {method.name} {wrong}; {more}"

    def _wrong_models(self) -> Iterator[str]:
        for name, model in self.config["models"].items():
            if model["experts_per_token"] > model["experts"]:
                yield (
                    f"models.{name}.experts_per_token = {model['experts_per_token']}: allowed is 1 to "
                    f"models.{name}.experts = {model['experts']}"
                )

    def _require(self, field: str, value: str, section: str) -> None:
        if value not in self.config[section]:
            raise GridError(f"{self.origin}: {not_known(field, value, section, self.config[section])}")


def _world_problem(given: Mapping[str, Any], world: Mapping[str, Any]) -> str | None:
    """What of a setting's settings its toy world cannot give; None when it gives all."""
    prompt, vocabulary = world["numbers"] + 2, world["limit"] + 5
    if given["prompt_length"] < prompt:
        return f"prompt_length = {given['prompt_length']}: allowed is >= {prompt}, the prompts of world"
    if given["prompts"] > world["train_prompts"]:
        rows = world["train_prompts"]
        return f"prompts = {given['prompts']}: allowed is 1 to train_prompts = {rows} of world"
    if given.get("top_k", 0) > vocabulary:
        return f"top_k = {given['top_k']}: allowed is 0 to the vocabulary size {vocabulary} of world"
    ks = (given.get("tokens") or {}).get("ks", [])
    if max(ks, default=0) > vocabulary:
        return f"tokens.ks = {ks}: allowed are sizes up to the vocabulary size {vocabulary} of world"
    return None


def _count(number: int, what: str) -> str:
    """`1 setting`, `3 settings`."""
    return f"{number} {what}{'' if number == 1 else 's'}"
