"""workflow: an old configuration key is refused, and the message names the new one.

Not covered: keys of verl's own configuration.
"""

from __future__ import annotations

from typing import Any

import pytest

from methods.backend import renamed
from methods.backend.run_config import RunConfig
from methods.backend.setting import ConfigError
from workflows.grid import Grid, GridError


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"panels": {"A": {"lr": 1e-3}}}, "panels: this key is now called settings"),
        ({"settings": {"A": {"lag": 2}}}, "settings.A.lag: this key is now called staleness"),
        ({"grid": [{"panels": ["A"]}]}, r"grid\[0\].panels: this key is now called settings"),
        (
            {"methods": {"predictive": {"options": {"proximity": "l2"}}}},
            "methods.predictive.options.proximity: this key is now called divergence",
        ),
    ],
)
def test_an_old_key_of_a_grid_is_refused_by_its_new_name(config: dict[str, Any], message: str) -> None:
    """Also where the same configuration has other faults: this one comes first."""
    with pytest.raises(GridError, match=message):
        Grid.check(config, "test")


def test_names_are_free() -> None:
    """A setting or variant may be called like an old key."""
    assert renamed.old_key({"settings": {"lag": {"lr": 1.0}}, "methods": {"panel": {"method": "pg_is"}}}) is None


def test_an_old_key_of_a_run_is_refused_by_its_new_name(tiny_world: Any, tmp_path: Any) -> None:
    raw = tiny_world.run_config(tmp_path / "run").dump()
    setting = {"lag" if name == "staleness" else name: value for name, value in raw["setting"].items()}
    with pytest.raises(ConfigError, match=r"setting.lag: unknown key \(now called staleness\); allowed"):
        RunConfig.build({**raw, "setting": setting})
