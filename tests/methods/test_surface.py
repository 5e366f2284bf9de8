"""Claim: what a method's file needs comes from `methods` itself, and asking for it loads no method and no big package.

Not covered: how long an import takes.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

import methods
from methods import config, contract, registry, signals

HEAVY = ("sympy", "verl", "matplotlib", "methods.catalogue.drpo", "methods.backend")


def loaded_by(statement: str) -> set[str]:
    """The heavy modules, torch among them, that a fresh interpreter has loaded after the statement."""
    program = f"import sys\n{statement}\nprint(*({{'torch', *{HEAVY!r}}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("name", methods.__all__)
def test_each_name_of_the_surface_is_the_module_s_own(name: str) -> None:
    found = getattr(methods, name)
    assert any(getattr(source, name, None) is found for source in (config, contract, registry, signals))


def test_another_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="'methods' has no attribute 'nonsense'"):
        _ = methods.nonsense


def test_the_surface_loads_no_method_and_provenance_no_torch() -> None:
    assert loaded_by(f"from methods import {', '.join(methods.__all__)}") == {"torch"}
    assert loaded_by("import methods.provenance") == set()
    assert "methods.catalogue.drpo" in loaded_by("from methods import names; names()")
