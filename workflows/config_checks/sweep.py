"""A sweep in one line: `drpo: {sweep: {delta: [0.05, 0.1, 0.2]}}` is three variants of one method."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from typing import Any

from methods import registry
from workflows.config_checks.values import GridError, shown

MOST_VARIANTS = 1000


def expand(config: dict[str, Any], origin: str) -> None:
    """Put the variants of each sweep in its place, in `methods` and where a grid names it. Raises GridError.

    One variant for each combination of the swept values, the last key's fastest.
    """
    swept: dict[str, list[str]] = {}
    found: dict[str, Any] = {}
    for name, settings in config["methods"].items():
        made = {name: settings}
        if "sweep" in settings:
            made = _variants(name, settings, origin)
            swept[name] = list(made)
        for variant, given in made.items():
            if variant in found or (variant in config["methods"] and name in swept):
                raise GridError(f"{origin}: methods.{name}.sweep: its variant {variant} is given twice under methods")
            found[variant] = given
    config["methods"] = found
    for section in ("grid", "token_grid"):
        for block in config[section]:
            if isinstance(block["methods"], list):
                block["methods"] = [name for variant in block["methods"] for name in swept.get(variant, [variant])]
    if config.get("reference") in swept:
        variant = config["reference"]
        names = ", ".join(swept[variant])
        raise GridError(f"{origin}: reference = {variant!r}: it is a sweep; allowed is one of its variants: {names}")


def _variants(variant: str, settings: Mapping[str, Any], origin: str) -> dict[str, Any]:
    plain = {key: value for key, value in settings.items() if key != "sweep"}
    options, method = plain.get("options", {}), plain.get("method", variant)
    both = sorted(set(settings["sweep"]) & set(options))
    if both:
        raise GridError(f"{origin}: methods.{variant}.sweep.{both[0]}: it is in options too; allowed is one of them")
    try:
        title = plain.get("title", registry.get(method).title)
    except registry.UnknownMethodError as error:
        raise GridError(f"{origin}: methods.{variant}: {error}") from None
    keys, out = list(settings["sweep"]), {}
    variants = math.prod(map(len, settings["sweep"].values()))
    if variants > MOST_VARIANTS:
        raise GridError(f"{origin}: methods.{variant}.sweep: {variants} variants; allowed are up to {MOST_VARIANTS}")
    for values in itertools.product(*settings["sweep"].values()):
        chosen = dict(zip(keys, values, strict=True))
        name = "_".join([variant, *(f"{key}_{_text(value)}" for key, value in chosen.items())])
        if not re.fullmatch(r"[A-Za-z0-9_.-]{1,100}", name):
            raise GridError(f"{origin}: methods.{variant}.sweep: {shown(chosen)} makes no variant of up to 100 letters")
        if name in out:
            raise GridError(f"{origin}: methods.{variant}.sweep: two of its variants would be called {name}")
        said = ", ".join(f"{key} {_text(value, ' to ')}" for key, value in chosen.items())
        out[name] = {**plain, "method": method, "options": {**options, **chosen}, "title": f"{title}, {said}"}
    return out


def _text(value: Any, between: str = "-") -> str:
    """A value as part of a variant: 0.05, true, none, a pair as 0.1-0.2."""
    if isinstance(value, list):
        return between.join(_text(entry) for entry in value)
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return str(value).replace("+", "")
