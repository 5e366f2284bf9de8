"""Configuration keys that were renamed: an old one is refused with its new name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

RENAMED = {
    "panels": "settings",
    "panel": "setting",
    "panel_name": "setting_name",
    "label": "variant",
    "lag": "staleness",
    "proximity": "divergence",
}


def hint(key: str) -> str:
    """` (now called settings)` for an old key, nothing for another."""
    return f" (now called {RENAMED[key]})" if key in RENAMED else ""


def old_key(config: Mapping[str, Any]) -> str | None:
    """What is wrong with the first old key of a grid's configuration; None where there is none."""
    for place, key in _keys(config):
        if key in RENAMED:
            return f"{place}{key}: this key is now called {RENAMED[key]}"
    return None


def _keys(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """(place, key) of every key that the program names, not the user: names of settings and variants are free."""
    yield from (("", key) for key in config)
    for section in ("grid", "token_grid"):
        blocks = config.get(section)
        for number, block in enumerate(blocks if isinstance(blocks, list) else []):
            yield from ((f"{section}[{number}].", key) for key in _mapping(block))
    for section in ("settings", "panels"):
        for name, setting in _mapping(config.get(section)).items():
            yield from ((f"{section}.{name}.", key) for key in _mapping(setting))
    for name, variant in _mapping(config.get("methods")).items():
        yield from ((f"methods.{name}.options.", key) for key in _mapping(_mapping(variant).get("options")))


def _mapping(value: Any) -> Mapping[Any, Any]:
    return value if isinstance(value, Mapping) else {}
