"""The facts of a method, read from the catalogue file's docstring, its typed options and the registry.

An option is described by a string literal below its field.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import math
import re
import textwrap
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from itertools import pairwise
from typing import Any

from methods.config import MethodConfig, MethodConfigError
from methods.registry import Method, Needs

NEEDS = {
    Needs.TOP_K: "top-K",
    Needs.SUM_PI_SQUARED: "sum pi²",
    Needs.FULL: "full",
    Needs.RECOMPUTED_ANCHOR: "recomputed anchor",
    Needs.MINI_BATCH: "mini-batch",
    Needs.RANDOM: "random",
}
SECTIONS = ("Source", "Shapes", "Units", "Detached", "Public code", "Equals")
# Values that some option refuses; what it then says is allowed is its documentation.
_PROBES: tuple[Any, ...] = (object(), math.nan, -1.0, 0.0, 0.5, 2.0, 1e9)


@dataclass(frozen=True)
class Option:
    """One option of a method: its default, the value at hand, and what it accepts, all as text."""

    name: str
    kind: str
    default: str
    value: str
    meaning: str
    allowed: str


@dataclass(frozen=True)
class Facts:
    """A method in words. formula: lines as in the docstring; notes: prose around it; sections: {heading: text}."""

    method: Method
    config: MethodConfig
    summary: str
    formula: str
    notes: tuple[str, ...]
    sections: Mapping[str, str]
    options: tuple[Option, ...]

    @property
    def paper(self) -> str:
        """`arXiv 2606.09821` of a source `arXiv 2606.09821, Eqs. 8-9`."""
        return self.method.source.partition(", ")[0]

    @property
    def equation(self) -> str:
        """`Eqs. 8-9` of that source, or a dash."""
        return self.method.source.partition(", ")[2] or "–"

    @property
    def needs(self) -> str:
        """What the method must be given with these options."""
        return needs_words(self.method.requires(self.config))

    @property
    def needs_depend_on_options(self) -> bool:
        return callable(self.method.needs)


def needs_words(needs: Needs) -> str:
    """`top-K + sum pi²`; `sampled` where nothing is needed beyond the sampled token."""
    return " + ".join(word for need, word in NEEDS.items() if need in needs) or "sampled"


def facts(method: Method, options: Mapping[str, Any] | None = None) -> Facts:
    """Facts of a method with these options. Raises MethodConfigError."""
    config = method.configure(options)
    document = inspect.cleandoc(importlib.import_module(method.module).__doc__ or "")
    head, *labelled = re.split(rf"(?<!\S)({'|'.join(SECTIONS)}):\s+", document)
    paragraphs = [part for part in re.split(r"\n\s*\n", head) if part.strip()]
    formulas = [inspect.cleandoc("\n" + part) for part in paragraphs if part.startswith(" ")]
    prose = [" ".join(part.split()) for part in paragraphs if not part.startswith(" ")]
    return Facts(
        method=method,
        config=config,
        summary=prose[0] if prose else method.title,
        formula="\n\n".join(formulas),
        notes=tuple(prose[1:]),
        sections={name: " ".join(text.split()) for name, text in zip(labelled[::2], labelled[1::2], strict=True)},
        options=_options(config),
    )


def _options(config: MethodConfig) -> tuple[Option, ...]:
    kind, hints = type(config), typing.get_type_hints(type(config))
    meanings = option_meanings(kind)
    return tuple(
        Option(
            name=field.name,
            kind=_kind(hints[field.name]),
            default="required" if field.default is MISSING else show(field.default),
            value=show(getattr(config, field.name)),
            meaning=meanings.get(field.name, ""),
            allowed=_allowed(config, field.name),
        )
        for field in fields(config)
    )


def show(value: Any) -> str:
    """A value as text: `none`, `(0.1, 0.2)`, `forward_kl`."""
    if value is None:
        return "none"
    if isinstance(value, tuple):
        return f"({', '.join(map(show, value))})"
    return str(value).lower() if isinstance(value, bool) else str(value)


def option_meanings(kind: type[MethodConfig]) -> dict[str, str]:
    """{field: the string literal below it}, the nearest class first; a field without one is left out."""
    found: dict[str, str] = {}
    for owner in kind.__mro__:
        if not issubclass(owner, MethodConfig):
            continue
        try:
            source = inspect.getsource(owner)
        except OSError:  # defined in no file
            continue
        (definition,) = ast.parse(textwrap.dedent(source)).body
        assert isinstance(definition, ast.ClassDef)
        for field, below in pairwise(definition.body):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found.setdefault(name, " ".join(text.split()))
    return found


def _kind(hint: Any) -> str:
    """A type as a reader would name it."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(_kind(each) for each in arguments))
    if origin is typing.Literal:
        return " or ".join(f"`{each}`" for each in arguments)
    if origin is tuple:
        return f"({', '.join(_kind(each) for each in arguments)})"
    return {float: "number", int: "integer", bool: "true or false", str: "text", type(None): "none"}.get(
        hint, getattr(hint, "__name__", str(hint))
    )


def _allowed(config: MethodConfig, name: str) -> str:
    """What the option's own errors say is allowed, in the order in which they are met."""
    texts: dict[str, None] = {}
    for probe in _PROBES:
        try:
            replace(config, **{name: probe})
        except MethodConfigError as error:
            if match := re.search(r"allowed (?:is|are) (.*)", str(error), re.DOTALL):
                texts.setdefault(" ".join(match[1].split()))
        except (TypeError, ValueError):
            continue  # a check that takes its value's type for granted has nothing to say here
    return "; ".join(texts)
