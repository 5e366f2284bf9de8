"""The mathematics of a policy loss for LLM reinforcement learning: what a token's gradient is multiplied with.

This room knows torch only. `methods.catalogue` holds one file per method, `methods.backend` is the one place that
knows verl, and everything else here is a pure function of log-probabilities. What a method's file needs:

    from methods import MethodConfig, Needs, Signals, check_positive, register

Names are imported when they are asked for, so that `methods.provenance` does not cost an import of torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from methods.config import (
        MethodConfig,
        MethodConfigError,
        Radius,
        check_cap,
        check_choice,
        check_flag,
        check_fraction,
        check_non_negative,
        check_positive,
        check_radius,
    )
    from methods.contract import MethodError, Needs
    from methods.registry import Method, get, names, register
    from methods.signals import Scope, Signals, Support, log_ratio, probability

__all__ = [
    "Method",
    "MethodConfig",
    "MethodConfigError",
    "MethodError",
    "Needs",
    "Radius",
    "Scope",
    "Signals",
    "Support",
    "check_cap",
    "check_choice",
    "check_flag",
    "check_fraction",
    "check_non_negative",
    "check_positive",
    "check_radius",
    "get",
    "log_ratio",
    "names",
    "probability",
    "register",
]
# Searched in this order; the last three need torch.
_SOURCES = ("methods.config", "methods.contract", "methods.registry", "methods.signals")


def __getattr__(name: str) -> Any:
    if name in __all__:
        for source in map(import_module, _SOURCES):
            if hasattr(source, name):
                return getattr(source, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
