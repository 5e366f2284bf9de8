"""From a validated configuration to cells: which trainings there are, what each reads, and where its files lie."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import yaml
from jsonschema.exceptions import best_match
from snakemake.utils import validate

from methods.backend.cell import Cell
from methods.backend.data_check import path_problem
from methods.backend.model_check import folder_problem, length_problem
from methods.backend.needs import vocabulary_problem
from methods.backend.panel import CellError
from methods.backend.rollout_settings import NOT_INSTALLED

SOURCE_FIELDS = ("world", "model", "warm_start_seed", "model_path", "train_files", "val_files", "reward_function")
TOY_REWARD = "workflows/world/reward.py"
REFERENCE = "dppo_topk_kl"
SCHEMA = Path(__file__).parent / "schemas" / "config.schema.yaml"


class GridError(ValueError):
    """A configuration that no cell can be built from; the message names file, field, value and what is allowed."""


@dataclass(frozen=True)
class Source:
    """What a panel's trainings start from: a model directory, parquet files, a reward, and a task to score with."""

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

    @classmethod
    def check(cls, config: dict[str, Any], origin: str) -> Grid:
        """Validate a configuration and every cell of it; fills in the schema's defaults. Raises GridError."""
        for section in ("worlds", "models", "panels", "methods"):
            for name in config.get(section) or {}:
                if not isinstance(name, str):
                    raise GridError(f"{origin}: {section}: the name {name!r} is no text for YAML; put it in quotes")
        if isinstance(config.get("methods"), dict):
            # `pg_is:` alone in YAML is null; it means a method without options.
            config["methods"] = {label: settings or {} for label, settings in config["methods"].items()}
        schema = yaml.safe_load(SCHEMA.read_text())
        error = best_match(jsonschema.Draft202012Validator(schema).iter_errors(config))
        if error is not None:
            place = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in error.absolute_path)
            raise GridError(f"{origin}: {place.lstrip('.') or 'top level'}: {error.message}{_hint(error)}")
        known, wanted = list(config["methods"]), config.get("reference")
        if wanted is not None and wanted not in known:
            raise GridError(
                f"{origin}: reference = {wanted!r}: allowed are the names under methods: {', '.join(known)}"
            )
        config.setdefault("reference", REFERENCE if REFERENCE in known else known[0])
        validate(config, str(SCHEMA))
        grid = cls(config, origin)
        grid._check_models()
        list(grid.cells())
        grid.token_cells()
        grid.check_scoring()
        return grid

    @property
    def results(self) -> str:
        """Folder of this tier's results."""
        return f"results/{self.config['tier']}"

    def keys(self, section: str = "grid") -> list[tuple[str, str, int]]:
        """(panel, label, seed) of every cell of `grid` or `token_grid`, in order, without repeats."""
        found: dict[tuple[str, str, int], None] = {}
        for i, block in enumerate(self.config[section]):
            labels = list(self.config["methods"]) if block["methods"] == "all" else block["methods"]
            seeds = block["seeds"] if isinstance(block["seeds"], list) else range(block["seeds"]["count"])
            for panel in block["panels"]:
                self._require(f"{section}[{i}].panels", panel, "panels")
                for label in labels:
                    self._require(f"{section}[{i}].methods", label, "methods")
                    for seed in seeds:
                        found[(panel, label, seed)] = None
        return list(found)

    def token_cells(self) -> dict[str, Cell]:
        """{place below tokens/: cell} of the token study. Raises GridError where a panel records no tokens."""
        found = {}
        for key in self.keys("token_grid"):
            if self.config["panels"][key[0]].get("tokens") is None:
                raise GridError(f"{self.origin}: panels.{key[0]}.tokens is missing, and token_grid names this panel")
            found[self.path(*key)] = self.cell(*key, folder="tokens", work="work_tokens")
        return found

    def path(self, panel: str, label: str, seed: int | str) -> str:
        """A cell's place below runs/ and scores/."""
        return f"panel~{panel}/method~{label}/seed~{seed}"

    def source(self, panel: str) -> Source:
        """Where a panel's model and data come from. Raises GridError."""
        settings = self.config["panels"][panel]
        own = [name for name in ("model_path", "train_files", "val_files", "reward_function") if name in settings]
        toy = [name for name in ("world", "model") if name in settings]
        if own and toy:
            raise GridError(f"{self.origin}: panels.{panel} has both {toy[0]!r} and {own[0]!r}: allowed is one kind")
        if own:
            return self._own_source(panel, settings)
        for name, section in (("world", "worlds"), ("model", "models")):
            if name not in settings:
                raise GridError(f"{self.origin}: panels.{panel}.{name} is missing (or give model_path and data)")
            self._require(f"panels.{panel}.{name}", settings[name], section)
        world = f"{self.results}/worlds/{settings['world']}"
        return Source(
            model=f"{self.results}/warm_starts/{self.warm_start(panel)}",
            train_files=[f"{world}/train.parquet"],
            val_files=[f"{world}/test.parquet"],
            reward_function={"path": TOY_REWARD, "name": "compute_score"},
            task={"name": "sort"},
        )

    def _own_source(self, panel: str, settings: Mapping[str, Any]) -> Source:
        for name in ("model_path", "train_files", "val_files", "reward_function"):
            if name not in settings:
                raise GridError(f"{self.origin}: panels.{panel}.{name} is missing beside your own model or data")
        paths = {"model_path": [settings["model_path"]], "reward_function.path": [settings["reward_function"]["path"]]}
        paths |= {name: settings[name] for name in ("train_files", "val_files")}
        for name, values in paths.items():
            for value in values:
                if not Path(value).exists():
                    raise GridError(f"{self.origin}: panels.{panel}.{name} = {value}: no such file or directory")
                problem = {"model_path": folder_problem, "reward_function.path": lambda _: None}.get(name, path_problem)
                if (wrong := problem(value)) is not None:
                    raise GridError(f"{self.origin}: panels.{panel}.{name} = {wrong}")
        return Source(
            model=settings["model_path"],
            train_files=list(settings["train_files"]),
            val_files=list(settings["val_files"]),
            reward_function=dict(settings["reward_function"]),
            task=dict(settings.get("task", {})),
        )

    def check_scoring(self) -> None:
        """What lm-eval can score. Raises GridError."""
        for panel in {key[0] for key in self.keys()}:
            settings = self.config["panels"][panel]
            if "world" in settings and "task" in settings:
                raise GridError(f"{self.origin}: panels.{panel}.task: a toy panel has its own; allowed with model_path")
            template = settings.get("chat_template")
            if "task" in settings and template is not None:
                raise GridError(
                    f"{self.origin}: panels.{panel}.chat_template = {template!r}: allowed is null where a task scores, "
                    "since scoring renders with the model folder's own (put the template there)"
                )
            if "task" in settings and len(settings["val_files"]) > 1:
                raise GridError(f"{self.origin}: panels.{panel}.val_files: allowed is one file where a task scores it")
            world = self.config["worlds"].get(settings.get("world"))
            problems = self.config["scoring"]["problems"]
            if world is not None and problems > world["test_prompts"]:
                raise GridError(
                    f"{self.origin}: scoring.problems = {problems}: allowed is at most worlds."
                    f"{settings['world']}.test_prompts = {world['test_prompts']}"
                )

    def check_engines(self, vllm: bool) -> None:
        """Whether the mismatch figure's rollouts can be had; vllm: is it installed? Raises GridError."""
        if "vllm" in self.config["mismatch"]["engines"] and not vllm:
            raise GridError(f"{self.origin}: mismatch.engines = 'vllm': {NOT_INSTALLED}, or leave it out")

    def warm_start(self, panel: str) -> str:
        """Name of the toy model that a panel starts from."""
        settings = self.config["panels"][panel]
        return f"{settings['model']}-{settings['world']}-ws{settings['warm_start_seed']}"

    def cell(self, panel: str, label: str, seed: int, folder: str = "runs", work: str = "work") -> Cell:
        """A checked cell; its results go below `folder`, a running training below `work`.

        Raises GridError naming panel and method.
        """
        settings = {k: v for k, v in self.config["panels"][panel].items() if k not in (*SOURCE_FIELDS, "task")}
        overrides = settings.pop("overrides", [])
        method = self.config["methods"][label]
        source, where = self.source(panel), self.path(panel, label, seed)
        world = self.config["worlds"].get(self.config["panels"][panel].get("world"))
        if world is not None:
            settings.setdefault("prompt_length", world["numbers"] + 2)
            settings.setdefault("response_length", world["numbers"] + 1)
            # Else `5 <sep> 7` would be read, and paid, as `5 7`.
            settings.setdefault("reward_special_tokens", True)
            vocabulary = world["limit"] + 5
            if settings.get("top_k", 0) > vocabulary:
                raise GridError(
                    f"{self.origin}: panels.{panel}.top_k = {settings['top_k']}: allowed is 0 to the vocabulary size "
                    f"{vocabulary} of world {self.config['panels'][panel]['world']}"
                )
        try:
            cell = Cell.build(
                {
                    "label": label,
                    "method": method.get("method", label),
                    "options": method.get("options", {}),
                    "seed": seed,
                    "panel": settings,
                    "panel_name": panel,
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
        except CellError as error:
            raise GridError(f"{self.origin}: panels.{panel}, methods.{label}: {error}") from None
        wrong = None if world is None else vocabulary_problem(cell.method, cell.needs, cell.panel.top_k, vocabulary)
        if wrong is not None:
            raise GridError(f"{self.origin}: panels.{panel}.{wrong}")
        if world is None:
            config = json.loads(Path(source.model, "config.json").read_text())
            wrong = length_problem(config, cell.panel.prompt_length, cell.panel.response_length)
            if wrong is not None:
                raise GridError(f"{self.origin}: panels.{panel}.{wrong}")
        return cell

    def cells(self) -> Iterator[Cell]:
        """Every cell, checked."""
        for key in self.keys():
            yield self.cell(*key)

    def _check_models(self) -> None:
        for name, model in self.config["models"].items():
            if model["experts_per_token"] > model["experts"]:
                raise GridError(
                    f"{self.origin}: models.{name}.experts_per_token = {model['experts_per_token']}: allowed is 1 to "
                    f"models.{name}.experts = {model['experts']}"
                )

    def _require(self, field: str, value: str, section: str) -> None:
        if value not in self.config[section]:
            known = ", ".join(self.config[section]) or "none"
            raise GridError(f"{self.origin}: {field} = {value!r}: allowed are the names under {section}: {known}")


def _hint(error: jsonschema.ValidationError) -> str:
    """What is allowed where an unknown key stands, and the one trap of YAML's numbers."""
    if error.validator == "additionalProperties":
        return f"; allowed are {', '.join(error.schema.get('properties', {}))}"
    if error.validator == "type" and isinstance(error.instance, str) and _reads_as_number(error.instance):
        return "; YAML reads a number without a point, such as 1e-4, as text: write 1.0e-4"
    return ""


def _reads_as_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
