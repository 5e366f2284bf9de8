"""Typed method options: frozen dataclasses with the papers' defaults that refuse nonsense."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

Radius = float | tuple[float, float]
# Beyond these sizes float32 arithmetic on ratios and divergences over- or underflows; `null` switches a cap off.
SMALLEST, LARGEST = 1e-15, 1e15


class MethodConfigError(ValueError):
    """An option of a method is unknown or outside its range; the message names field, value and what is allowed."""


@dataclass(frozen=True)
class MethodConfig:
    """Base of all method options: no options."""

    @classmethod
    def build(cls, method: str, options: Mapping[str, Any]) -> MethodConfig:
        """Options from plain values (YAML, Hydra). Raises MethodConfigError naming method and field."""
        known = {field.name for field in fields(cls)}
        for name in options:
            if name not in known:
                allowed = ", ".join(sorted(known)) or "none"
                raise MethodConfigError(
                    f"method {method}: unknown option {name!r}; its options are: {allowed}{did_you_mean(name, known)}"
                )
        plain = {k: tuple(v) if isinstance(v, list | tuple) else v for k, v in options.items()}
        try:
            return cls(**plain)
        except MethodConfigError as error:
            raise MethodConfigError(f"method {method}: {error}") from None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'dro' or 'drpo'?` for a name that is nearly one of the known, else nothing."""
    near = difflib.get_close_matches(str(name), sorted(known), n=3, cutoff=0.7)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


def sides(radius: Radius) -> tuple[float, float]:
    """(low, high) of a radius that may be one number for both signs of the advantage."""
    return radius if isinstance(radius, tuple) else (radius, radius)


def check_radius(name: str, radius: Any) -> None:
    """A trust radius: a number > 0, or a pair (low, high) of such."""
    pair = radius if isinstance(radius, tuple) else (radius, radius)
    if len(pair) != 2 or not all(_is_number(x) and x > 0 for x in pair):
        raise MethodConfigError(f"{name} = {radius!r}: allowed is a finite number > 0, or a pair (low, high) of such")


def check_positive(name: str, value: Any) -> None:
    """A finite number > 0."""
    if not (_is_number(value) and value > 0):
        raise MethodConfigError(f"{name} = {value!r}: allowed is a finite number > 0")


def check_non_negative(name: str, value: Any) -> None:
    """A finite number >= 0."""
    if not (_is_number(value) and value >= 0):
        raise MethodConfigError(f"{name} = {value!r}: allowed is a finite number >= 0")


def check_fraction(name: str, value: Any) -> None:
    """A number in (0, 1]."""
    if not (_is_number(value) and 0 < value <= 1):
        raise MethodConfigError(f"{name} = {value!r}: allowed is 0 < {name} <= 1")


def check_choice(name: str, value: Any, allowed: Iterable[str]) -> None:
    """One of some words."""
    words = tuple(allowed)
    if not (isinstance(value, str) and value in words):
        raise MethodConfigError(f"{name} = {value!r}: allowed is one of {', '.join(words)}")


def check_flag(name: str, value: Any) -> None:
    """true or false."""
    if not isinstance(value, bool):
        raise MethodConfigError(f"{name} = {value!r}: allowed is true or false")


def check_cap(name: str, value: Any) -> None:
    """A cap on the importance ratio: a number >= 1, or null for none."""
    if value is not None and not (_is_number(value) and value >= 1):
        raise MethodConfigError(f"{name} = {value!r}: allowed is a finite number >= 1, or null for no cap")


def _is_number(value: Any) -> bool:
    """A finite number that float32 holds, with room for its square's reciprocal: 0, or a size of 1e-15 to 1e15."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    # Compared before anything converts: an integer may be beyond every float.
    return value == 0 or SMALLEST <= abs(value) <= LARGEST
