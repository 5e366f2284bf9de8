"""One run of the grid: a training, checked before anything is built."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from methods import registry
from methods.backend import renamed
from methods.backend.requirements import setting_problem
from methods.backend.setting import ConfigError, Setting, integer
from methods.backend.tokens.settings import TokenSettings, TokenSettingsError

TRACKERS = ("tensorboard", "wandb")
# NumPy's legacy generators, which verl and lm-eval seed, take 32 bits.
HIGHEST_SEED = 2**32 - 1


@dataclass(frozen=True)
class RewardFunction:
    """A user's reward: `name` in the Python file `path`, with verl's compute_score signature."""

    path: str
    name: str = "compute_score"


@dataclass(frozen=True)
class RunConfig:
    """One training: a setting, a method with options, a seed, and the files it reads and writes.

    model: Hugging Face directory; train_files, val_files: parquet in verl's layout; output: run directory.
    work: directory of the running training, from which an interrupted one resumes (default: output + ".work").
    label: the method's name in tables and figures (it may differ from `method` where one method runs twice).
    trackers: of verl, beside metrics.jsonl.
    overrides: further Hydra overrides of verl's configuration, in its grammar; they win.
    """

    variant: str
    method: str
    seed: int
    setting: Setting
    model: str
    train_files: list[str]
    val_files: list[str]
    output: str
    reward_function: RewardFunction
    work: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    setting_name: str = "default"
    overrides: list[str] = field(default_factory=list)
    trackers: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for tracker in self.trackers:
            if tracker not in TRACKERS:
                raise ConfigError(f"trackers = {tracker!r}: allowed are {', '.join(TRACKERS)}")
        integer("seed", self.seed, low=0)
        if self.seed > HIGHEST_SEED:
            raise ConfigError(f"seed = {self.seed}: allowed is an integer from 0 to {HIGHEST_SEED}")
        try:
            wrong = setting_problem(self.method, self.needs, self.setting, self.overrides)
        except (registry.UnknownMethodError, ValueError) as error:
            raise ConfigError(str(error)) from None
        if wrong is not None:
            raise ConfigError(wrong)

    @property
    def needs(self) -> registry.Needs:
        """What the method needs with its options. Raises UnknownMethodError, MethodConfigError."""
        method = registry.get(self.method)
        return method.requires(method.configure(self.options))

    @property
    def work_dir(self) -> Path:
        """Where the running training lives; absolute, since verl joins relative paths with its own ideas."""
        return Path(self.work or f"{self.output}.work").absolute()

    @classmethod
    def load(cls, path: Path) -> RunConfig:
        """Read a run from a JSON file. Raises ConfigError naming file and field."""
        if not path.is_file():
            raise ConfigError(f"{path}: no such file")
        return cls.parse(path.read_text(), str(path))

    @classmethod
    def parse(cls, text: str, origin: str) -> RunConfig:
        """Read a run from JSON; `origin` names it in messages. Raises ConfigError."""
        try:
            return cls.build(json.loads(text))
        except (json.JSONDecodeError, ConfigError) as error:
            raise ConfigError(f"{origin}: {error}") from None

    @classmethod
    def build(cls, raw: Mapping[str, Any]) -> RunConfig:
        """From plain values. Raises ConfigError."""
        values = dict(raw)
        setting = dict(values.get("setting", {}))
        if setting.get("tokens") is not None:
            setting["tokens"] = _build("setting.tokens", TokenSettings, setting["tokens"])
        values["setting"] = _build("setting", Setting, setting)
        values["reward_function"] = _build("reward_function", RewardFunction, values.get("reward_function", {}))
        return _build("run", cls, values)

    def dump(self) -> dict[str, Any]:
        """Plain values, the inverse of `build`."""
        return asdict(self)


def _build(where: str, kind: type, values: Mapping[str, Any]) -> Any:
    known = {f.name: f for f in fields(kind)}
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise ConfigError(
            f"{where}.{unknown[0]}: unknown key{renamed.hint(unknown[0])}; allowed are {', '.join(sorted(known))}"
        )
    try:
        return kind(**values)
    except TokenSettingsError as error:
        raise ConfigError(f"setting.{error}") from None
    except TypeError as error:
        raise ConfigError(f"{where}: {str(error).removeprefix(kind.__name__ + '.__init__() ')}") from None
