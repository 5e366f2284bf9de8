"""A configuration against its schema: plain values, known keys, one line that names file, field and what is allowed."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import yaml
from jsonschema.exceptions import best_match

from methods.config import did_you_mean

SCHEMA = Path(__file__).parents[1] / "schemas" / "config.schema.yaml"
# A longer value is cut in a message.
SHOWN = 100
LONGEST = 1000
# Beyond it neither a file's size nor a step's number is meant, and JSON readers lose digits.
LARGEST = 10**15


class GridError(ValueError):
    """A configuration that no run can be built from; the message names file, field, value and what is allowed."""


def check_values(config: dict[str, Any], origin: str) -> None:
    """Plain values and the schema's keys, types and ranges; then fills in its defaults. Raises GridError."""
    for place, problem in _not_plain(config, (), ()):
        raise GridError(f"{origin}: {place_of(place) or 'top level'}{problem}")
    if isinstance(config.get("methods"), dict):
        # `pg_is:` alone in YAML is null; it means a method without options.
        config["methods"] = {variant: {} if method is None else method for variant, method in config["methods"].items()}
    error = best_match(_validator().iter_errors(config))
    if error is not None:
        place = place_of(tuple(error.absolute_path)) or "top level"
        raise GridError(f"{origin}: {place}: {_words(error)}{_hint(error)}")
    _fill(_validator().schema, config)


def place_of(keys: tuple[str | int, ...]) -> str:
    """`settings.T.train_files[0]` of the keys that lead there."""
    return "".join(f"[{key}]" if isinstance(key, int) else f".{shown(key, bare=True)}" for key in keys).lstrip(".")


def shown(value: Any, bare: bool = False) -> str:
    """A value on one line, cut where it is long."""
    plain = bare and str(value).isprintable() and str(value).strip() == str(value) != ""
    text = str(value) if plain else repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def not_known(field: str, value: Any, section: str, known: Any) -> str:
    """`field = value: allowed are the names under section: ...; did you mean ...?`."""
    names = ", ".join(known) or "none"
    return f"{field} = {shown(value)}: allowed are the names under {section}: {names}{did_you_mean(value, known)}"


@cache
def _validator() -> Any:
    schema = yaml.safe_load(SCHEMA.read_text())
    plain = jsonschema.Draft202012Validator
    # The schema's own `integer` accepts 3.0, which no command line does.
    types = plain.TYPE_CHECKER.redefine("integer", lambda _, x: isinstance(x, int) and not isinstance(x, bool))
    return jsonschema.validators.extend(plain, type_checker=types)(schema)


def _not_plain(value: Any, place: tuple[str | int, ...], above: tuple[int, ...]) -> Iterator[tuple[Any, str]]:
    """(place, problem) of every value that JSON and a command line cannot carry."""
    if isinstance(value, Mapping | list):
        if id(value) in above:
            yield place, " contains itself (a YAML anchor inside its own block)"
            return
        items = enumerate(value) if isinstance(value, list) else value.items()
        for key, entry in items:
            if not isinstance(value, list) and not isinstance(key, str):
                yield place, f": the name {key!r} is no text for YAML; put it in quotes"
                return
            yield from _not_plain(entry, (*place, key), (*above, id(value)))
    elif isinstance(value, float):
        if not math.isfinite(value):
            yield place, f" = {value}: allowed is a finite number"
    elif isinstance(value, int):
        if abs(value) > LARGEST:
            yield place, f" = {shown(value)}: allowed are numbers up to 1e15"
    elif isinstance(value, str):
        if not value.isprintable():
            yield place, f" = {shown(value)}: allowed is text on one line"
        elif len(value) > LONGEST:
            yield place, f" = {shown(value)}: allowed is text of up to {LONGEST} characters"
    elif value is not None:
        yield place, f" = {shown(value)}: YAML reads it as {type(value).__name__}; allowed are numbers and text"


def _words(error: jsonschema.ValidationError) -> str:
    """jsonschema's sentence, with a long value cut."""
    value = repr(error.instance)
    return error.message.replace(value, shown(error.instance)) if len(value) > SHOWN else error.message


def _hint(error: jsonschema.ValidationError) -> str:
    """What is allowed where an unknown key or word stands, and the one trap of YAML's numbers."""
    if error.validator == "additionalProperties":
        known = list(error.schema.get("properties", {}))
        unknown = next(key for key in error.instance if key not in known)
        return f"; allowed are {', '.join(known)}{did_you_mean(str(unknown).lower(), known)}"
    if error.validator == "enum":
        return did_you_mean(str(error.instance).lower(), [str(word) for word in error.validator_value])
    if error.validator == "type" and isinstance(error.instance, str) and reads_as_number(error.instance):
        return NUMBER_HINT
    return ""


NUMBER_HINT = "; YAML reads a number without a point, such as 1e-4, as text: write 1.0e-4"


def reads_as_number(text: str) -> bool:
    """Whether Python reads a text as a number, which YAML did not."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _fill(schema: Mapping[str, Any], value: Any) -> None:
    """Put the schema's defaults where a valid configuration leaves a key out; a default's own defaults too."""
    if "$ref" in schema:
        schema = _validator().schema["$defs"][schema["$ref"].rpartition("/")[2]]
    if isinstance(value, dict):
        known = schema.get("properties", {})
        for key, below in known.items():
            if "default" in below:
                value.setdefault(key, copy.deepcopy(below["default"]))
        for key, entry in value.items():
            below = known.get(key, schema.get("additionalProperties"))
            if isinstance(below, Mapping):
                _fill(below, entry)
    elif isinstance(value, list) and "items" in schema:
        for entry in value:
            _fill(schema["items"], entry)
