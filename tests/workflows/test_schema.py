"""agreement: the configuration schema says of a setting what the dataclasses behind it say, and describes every key.

Values at the edge of each range are tried on both. Not covered: rules between two keys, which the
dataclass alone knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from typing import Any

import pytest
import yaml

from methods.backend.rollout.engines import ENGINES
from methods.backend.setting import ConfigError, Setting
from methods.backend.tokens.settings import TokenSettings, TokenSettingsError
from tiny_project import ROOT
from workflows.grid import SOURCE_FIELDS

SCHEMA = yaml.safe_load((ROOT / "workflows" / "schemas" / "config.schema.yaml").read_text())
SETTING = SCHEMA["properties"]["settings"]["additionalProperties"]
TOKENS = SETTING["properties"]["tokens"]["properties"]
# Keys of a setting that are no training settings: what it starts from, its scoring, and overrides of verl's own keys.
APART = {*SOURCE_FIELDS, "task", "overrides"}
KEYS = {name: spec for name, spec in SETTING["properties"].items() if name not in APART}
# A setting that every field can be changed in by itself.
BASE: dict[str, Any] = {
    **{"lr": 1e-3, "prompts": 8, "group": 4, "mini_batches": 1, "steps": 4, "prompt_length": 4, "response_length": 4},
    **{"save_every": 1, "runner": "ray"},
}


def accepts(name: str, value: Any) -> bool:
    """Whether a setting may have this value, with one of the rollout engines."""
    for engine in ENGINES:
        try:
            Setting(**{**BASE, "rollout_engine": engine, name: value})
            return True
        except ConfigError:
            continue
    return False


def accepts_token(name: str, value: Any) -> bool:
    try:
        TokenSettings(**{name: value})
        return True
    except TokenSettingsError:
        return False


def default_of(field: Field[Any]) -> Any:
    value = field.default
    return list(value) if isinstance(value, tuple) else None if value is MISSING else value


@pytest.mark.parametrize(("keys", "kind"), [(KEYS, Setting), (TOKENS, TokenSettings)])
def test_names_and_defaults_are_those_of_the_dataclass(keys: dict[str, Any], kind: Any) -> None:
    found = {field.name: default_of(field) for field in fields(kind)}
    assert set(keys) == set(found)
    # A toy world sets this one itself where it is not given.
    stated = {name: spec.get("default") for name, spec in keys.items()} | {"reward_special_tokens": False}
    assert {name: stated[name] for name in found} == found


def edges(keys: dict[str, Any]) -> Iterator[tuple[str, Any, bool]]:
    """(key, value, whether the schema allows it): both sides of each limit, each choice and another, other types."""
    for name, spec in keys.items():
        step = 1 if spec.get("type") == "integer" else 1e-6
        if "minimum" in spec:
            yield name, spec["minimum"], True
            yield name, spec["minimum"] - step, False
        if "exclusiveMinimum" in spec:
            yield name, spec["exclusiveMinimum"] + step, True
            yield name, spec["exclusiveMinimum"], False
        if "maximum" in spec:
            yield name, spec["maximum"], True
            yield name, spec["maximum"] + step, False
        if "enum" in spec:
            yield from ((name, value, True) for value in spec["enum"])
            yield name, "no such choice", False
        if spec.get("type") in ("integer", "number"):
            yield name, True, False
            yield name, "1", False
        if spec.get("type") == "integer":
            yield name, 1.5, False
        if spec.get("type") == "boolean":
            yield from ((name, value, True) for value in (True, False))
            yield from ((name, value, False) for value in (1, "true"))


@pytest.mark.parametrize(("name", "value", "allowed"), edges(KEYS))
def test_a_setting_has_the_ranges_of_the_schema(name: str, value: Any, allowed: bool) -> None:
    assert accepts(name, value) is allowed


@pytest.mark.parametrize(("name", "value", "allowed"), edges(TOKENS))
def test_a_token_record_has_the_ranges_of_the_schema(name: str, value: Any, allowed: bool) -> None:
    assert accepts_token(name, value) is allowed


@pytest.mark.parametrize("name", [name for name, spec in KEYS.items() if "enum" in spec])
def test_the_schema_has_every_choice(name: str) -> None:
    """The dataclass' own message lists what it allows, of each engine."""
    listed = set()
    for engine in ENGINES:
        with pytest.raises(ConfigError) as refused:
            Setting(**{**BASE, "rollout_engine": engine, name: "no such choice"})
        listed |= set(str(refused.value).split("allowed are ")[1].split(", "))
    assert listed == set(KEYS[name]["enum"])


def keys_of(node: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    for name, spec in node.get("properties", {}).items():
        yield (*path, name), spec
        yield from keys_of(spec, (*path, name))
    for below in (
        node.get("additionalProperties"),
        node.get("items"),
        *node.get("anyOf", ()),
        *node.get("$defs", {}).values(),
    ):
        if isinstance(below, dict):
            yield from keys_of(below, path)


def test_every_key_has_a_description() -> None:
    found = list(keys_of(SCHEMA))
    assert len(found) > 100
    assert not [".".join(path) for path, spec in found if not spec.get("description")]
