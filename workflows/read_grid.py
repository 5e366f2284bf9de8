"""A tier's configuration as the Snakefile reads it, for commands that run beside Snakemake."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from workflows.config_checks.file import LOADER, check_repeated_keys, check_tier
from workflows.grid import Grid, GridError

CONFIG_FOLDER = Path("workflows/config")


def config_file(tier: str) -> Path:
    """The file of a tier's name, or the path itself where it is one. Raises GridError."""
    path = Path(tier) if tier.endswith((".yaml", ".yml", ".json")) else CONFIG_FOLDER / f"{tier}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(each.stem for each in CONFIG_FOLDER.glob("*.yaml")))
        raise GridError(
            f"tier = {tier!r}: no such file {path}; allowed is one of {known}, or a path of a configuration"
        )
    return path


def read_grid(tier: str) -> Grid:
    """The checked grid of a tier. Raises GridError as the Snakefile does, before anything else is looked at."""
    path = config_file(tier)
    check_repeated_keys(path)
    text = path.read_text()
    config = json.loads(text) if path.suffix == ".json" else yaml.load(text, LOADER)
    if not isinstance(config, dict):
        raise GridError(f"{path}: allowed is a mapping of names to settings")
    grid = Grid.check(config, origin=str(path))
    check_tier(grid.config["tier"], [path], named=False)
    return grid
