"""What several rooms' tests share: a tiny world with a model that solves it sometimes, and runs that train on it."""

from __future__ import annotations

from methods.backend import environment  # noqa: F401  # isort: skip  # before anything imports torch

import os
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# The same examples on every machine and at every time, so that a red test is red again; TETHER_NEW_EXAMPLES=1 draws new
# ones and prints how to repeat a failure. No deadline: a busy machine is no counterexample.
NEW_EXAMPLES = os.environ.get("TETHER_NEW_EXAMPLES") == "1"
settings.register_profile("tether", deadline=None, derandomize=not NEW_EXAMPLES, database=None, print_blob=NEW_EXAMPLES)
settings.load_profile("tether")

ROOT = Path(__file__).resolve().parent.parent
# What `make check` leaves out (marker `slow`): trainings, Ray, vLLM, whole workflows, and what takes 5 seconds or more.
SLOW = (
    "backend/test_*",
    "derivations/test_[cnrt]*",
    "eval/test_method_pages*",
    "eval/test_report*",
    "eval/test_score*",
    "eval/tokens/test_open_questions*",
    "workflows/test_*",
    "workflows/tools/*",
)
FAST = tuple(f"backend/test_{name}.py" for name in ("aggregation", "local_queue", "loss", "metrics", "platform"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark whole files as slow."""
    for item in items:
        path = item.path.relative_to(ROOT / "tests").as_posix()
        if path not in FAST and any(fnmatch(path, pattern) for pattern in SLOW):
            item.add_marker(pytest.mark.slow)


@dataclass(frozen=True)
class TinyWorld:
    """Sorting 3 numbers below 40 (45 tokens), and a model with a few seconds of supervised training."""

    folder: Path
    model: Path

    @property
    def train(self) -> Path:
        return self.folder / "train.parquet"

    @property
    def test(self) -> Path:
        return self.folder / "test.parquet"

    def run_config(self, output: Path, method: str = "dppo_topk_kl", seed: int = 0, **changes: Any) -> Any:
        """A run of 3 steps with 2 mini-batches; `changes` go to the setting, except fields of the run itself."""
        from methods.backend.run_config import RunConfig

        setting: dict[str, Any] = {
            "lr": 1e-3,
            "prompts": 8,
            "group": 4,
            "mini_batches": 2,
            "steps": 3,
            "staleness": 1,
            "top_k": 5,
            "prompt_length": 5,
            "response_length": 4,
        }
        fields: dict[str, Any] = {
            "variant": method,
            "method": method,
            "seed": seed,
            "model": str(self.model),
            "train_files": [str(self.train)],
            "val_files": [str(self.test)],
            "reward_function": {"path": str(ROOT / "workflows" / "world" / "reward.py")},
            "output": str(output),
        }
        own = set(RunConfig.__dataclass_fields__) - {"setting"}
        fields |= {name: value for name, value in changes.items() if name in own}
        setting |= {name: value for name, value in changes.items() if name not in own}
        return RunConfig.build({**fields, "setting": setting})


@pytest.fixture(scope="session")
def tiny_world(tmp_path_factory: pytest.TempPathFactory) -> TinyWorld:
    """Built once; about five seconds."""
    from transformers import AutoTokenizer

    from workflows.world import build, warm_start
    from workflows.world.sorting import SortingWorld

    root = tmp_path_factory.mktemp("tiny world")  # a blank in the path, on purpose
    world = SortingWorld(numbers=3, limit=40, train_prompts=64, test_prompts=16, seed=0)
    build.write(world, root / "world")
    training = warm_start.Training(target=0.2, batch=128, lr=4e-3, check_every=25, check_prompts=64)
    model, _ = warm_start.fit(world, warm_start.ModelSize(hidden=32, layers=1, heads=1), training, seed=0)
    model.save_pretrained(root / "model")
    AutoTokenizer.from_pretrained(root / "world" / "tokenizer").save_pretrained(root / "model")
    return TinyWorld(folder=root / "world", model=root / "model")
