"""One way to make a toy run for a measurement: data, model and configuration below one folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from methods.backend.run_config import RunConfig
from workflows.world import REWARD

if TYPE_CHECKING:
    from workflows.world.sorting import SortingWorld
    from workflows.world.warm_start import ModelSize, Training

TOY_REWARD = Path(__file__).parents[2] / REWARD
METHOD = "dppo_topk_kl"


def make_toy(root: Path, world: SortingWorld, size: ModelSize, training: Training | None = None) -> None:
    """Write the data to `root`/world and a model with its tokenizer to `root`/model.

    The model has random weights, or those of a warm start. Seed 0.
    """
    # Imported here: torch and transformers, which making a configuration does not need.
    from workflows.world import build, warm_start

    build.write(world, root / "world")
    if training is None:
        model = warm_start.make_model(world, size, seed=0)
    else:
        model = warm_start.fit(world, size, training, seed=0)[0]
    model.save_pretrained(root / "model")
    warm_start.AutoTokenizer.from_pretrained(root / "world" / "tokenizer").save_pretrained(root / "model")


def toy_run(root: Path, name: str, setting: dict[str, Any], **changes: Any) -> RunConfig:
    """A run on what `make_toy` wrote, its results in `root`/name; `changes` replace fields of the run.

    Raises ConfigError for a setting that cannot be trained.
    """
    return RunConfig.build(
        {
            "variant": "toy",
            "method": METHOD,
            "seed": 0,
            "setting": setting,
            "model": str(root / "model"),
            "train_files": [str(root / "world" / "train.parquet")],
            "val_files": [str(root / "world" / "test.parquet")],
            "reward_function": {"path": str(TOY_REWARD)},
            "output": str(root / name),
            **changes,
        }
    )
