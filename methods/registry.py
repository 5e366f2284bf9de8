"""The catalogue's registry: one decorator line per method, and a lookup that lists what exists."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from methods import contract
from methods.config import MethodConfig, did_you_mean
from methods.contract import Needs
from methods.provenance import Mark
from methods.signals import Signals

Coefficient = Callable[[Signals, Any], Tensor]


@dataclass(frozen=True)
class Method:
    """One policy-gradient method: `coefficient(signals, config)` is g of gradient = E[sum_t g_t grad log pi].

    function: the catalogue file's own, without the checks. mark: how sure the formula is (methods.provenance.MARKS).
    """

    name: str
    title: str
    source: str
    mark: Mark
    function: Coefficient
    config_type: type[MethodConfig]
    needs: Needs | Callable[[Any], Needs]
    module: str

    def coefficient(self, signals: Signals, config: Any) -> Tensor:
        """g of sanitised signals, [B, T]. Raises MethodError for a signal that the method did not ask for, and where
        it returns anything but a detached float tensor [B, T] that is finite inside the response mask."""
        seen = contract.visible(self.name, self.requires(config), signals)
        return contract.checked(self.name, self.function(seen, config), signals)

    def requires(self, config: MethodConfig) -> Needs:
        """What the method needs with these options: a tail rule or a measure may decide it."""
        return self.needs(config) if callable(self.needs) else self.needs

    def configure(self, options: Mapping[str, Any] | None = None) -> MethodConfig:
        """Typed options. Raises MethodConfigError."""
        return self.config_type.build(self.name, options or {})


class UnknownMethodError(KeyError):
    """No method of that name; the message lists the known ones and names the nearest."""

    def __str__(self) -> str:
        return str(self.args[0])


CATALOGUE = "methods.catalogue"
_METHODS: dict[str, Method] = {}


def register(
    name: str,
    *,
    title: str,
    source: str,
    mark: Mark,
    config: type[MethodConfig] = MethodConfig,
    needs: Needs | Callable[[Any], Needs] = Needs.SAMPLED,
) -> Callable[[Coefficient], Coefficient]:
    """Decorator that adds a coefficient function to the catalogue. Raises ValueError for a name taken elsewhere."""

    def decorate(coefficient: Coefficient) -> Coefficient:
        taken = _METHODS.get(name)
        if taken is not None and taken.module != coefficient.__module__:
            raise ValueError(f"method name {name!r} is taken by {taken.module}")
        _METHODS[name] = Method(name, title, source, mark, coefficient, config, needs, coefficient.__module__)
        return coefficient

    return decorate


def load_catalogue() -> None:
    """Import every module of `methods.catalogue`, so that adding a file is enough to register a method."""
    package = importlib.import_module(CATALOGUE)
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{CATALOGUE}.{module.name}")


def names() -> tuple[str, ...]:
    """All method names, sorted."""
    load_catalogue()
    return tuple(sorted(_METHODS))


def get(name: str) -> Method:
    """The method of that name. Raises UnknownMethodError listing the known names."""
    load_catalogue()
    try:
        return _METHODS[name]
    except KeyError:
        known = names()
        raise UnknownMethodError(
            f"unknown method {name!r}; known are: {', '.join(known)}{did_you_mean(name, known)}"
        ) from None
