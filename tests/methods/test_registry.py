"""Claim: a file in the catalogue is a method, each method is its own, and an unknown name says what exists."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import methods.catalogue
from methods import registry
from methods.config import MethodConfig
from methods.registry import Needs
from methods.signals import sanitise
from tests.methods.helpers import SHIPPED, Line, lines, random_rows

ADDED = '''"""All ones: a file as a user would add it."""
import torch
from methods.registry import register

@register("{name}", title="Ones", source="none", mark="N")
def coefficient(signals, config):
    return torch.ones_like(signals.advantages)
'''


@pytest.fixture
def drawer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An extra folder of the catalogue package; what it registers is gone afterwards."""
    monkeypatch.setattr(registry, "_METHODS", dict(registry._METHODS))
    monkeypatch.setattr(methods.catalogue, "__path__", [*methods.catalogue.__path__, str(tmp_path)])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("methods.catalogue."):
            del sys.modules[name]
            delattr(methods.catalogue, name.rpartition(".")[2])
    importlib.invalidate_caches()


def test_a_new_file_is_a_new_method(drawer: Path) -> None:
    before = registry.names()
    (drawer / "ones_file.py").write_text(ADDED.format(name="ones"))
    assert registry.names() == tuple(sorted([*before, "ones"]))
    method = registry.get("ones")
    assert (method.name, method.title, method.mark) == ("ones", "Ones", "N")
    assert method.module == "methods.catalogue.ones_file" and method.needs == Needs.SAMPLED
    assert method.configure() == MethodConfig()


def test_a_taken_name_is_refused(drawer: Path) -> None:
    registry.load_catalogue()
    (drawer / "thief.py").write_text(ADDED.format(name="drpo"))
    with pytest.raises(ValueError, match="'drpo' is taken by methods.catalogue.drpo"):
        registry.names()


def test_loading_again_changes_nothing() -> None:
    before = registry.get("drpo")
    importlib.reload(importlib.import_module(before.module))
    assert registry.get("drpo").name == "drpo" and registry.names() == registry.names()


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(registry.UnknownMethodError) as error:
        registry.get("dpro")
    known = ", ".join(registry.names())
    assert str(error.value) == f"unknown method 'dpro'; known are: {known}; did you mean 'dro' or 'drpo'?"
    assert isinstance(error.value, KeyError)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_catalogue_file_is_short_and_tells_its_source(name: str) -> None:
    method = registry.get(name)
    module = importlib.import_module(method.module)
    assert len(Path(module.__file__).read_text().splitlines()) < 100
    for part in ("g = ", "Source:", "Shapes:", "Detached:", "Public code:", "arXiv"):
        assert part in module.__doc__, part
    assert method.mark in "FSIN" and method.title and "arXiv" in method.source


def test_our_methods_are_all_there() -> None:
    """Beside them a user may have added more."""
    assert set(SHIPPED) <= set(registry.names()) and len(set(SHIPPED)) == len(SHIPPED)


def test_titles_are_unique() -> None:
    titles = [registry.get(name).title for name in registry.names()]
    assert len(set(titles)) == len(titles)


# What each need brings, and what an error about its absence must name.
BRINGS = {
    Needs.TOP_K: ("support", "top_k"),
    Needs.SUM_PI_SQUARED: ("sum_pi_squared", "sum_pi_squared"),
    Needs.FULL: ("full", "full"),
    Needs.RECOMPUTED_ANCHOR: ("logp_old", "logp_old"),
    Needs.RANDOM: ("uniforms", "uniforms"),
}


@pytest.mark.parametrize("line", lines(), ids=lambda line: line.label)
def test_needs_are_true(line: Line) -> None:
    """With nothing but what it says it needs a method works; without a declared need it refuses."""
    method, signals = registry.get(line.method), sanitise(random_rows(0).signals())
    config = method.configure(line.options)
    needs = method.requires(config)
    lacking = {field: None for need, (field, _) in BRINGS.items() if need not in needs}
    bare = replace(signals, entropy=None, **lacking)
    assert torch.equal(method.coefficient(bare, config), method.coefficient(signals, config))
    for need, (field, word) in BRINGS.items():
        if need in needs:
            with pytest.raises(ValueError, match=word):
                method.coefficient(replace(signals, **{field: None}), config)


def assert_all_differ(coefficients: dict[str, torch.Tensor], advantages: torch.Tensor) -> None:
    """No two g are equal, and none is a constant or a plain policy gradient."""
    labels = list(coefficients)
    for i, a in enumerate(labels):
        g = coefficients[a]
        assert g.unique().numel() > 2, f"{a} is constant"
        assert not torch.allclose(g, advantages), f"{a} ignores the ratio"
        for b in labels[i + 1 :]:
            assert not torch.allclose(g, coefficients[b], rtol=1e-6), f"{a} equals {b}"


def off_policy() -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """g of every line on 16 x 16 tokens over 12 ids, K = 4, pi one unit of logit noise away from mu."""
    signals = random_rows(0, batch=16, length=16).signals()
    return {line.label: line.coefficient(signals) for line in lines()}, signals.advantages


def test_no_two_methods_are_the_same() -> None:
    assert_all_differ(*off_policy())


def test_an_impostor_is_noticed(drawer: Path) -> None:
    """All ones under a new name, and a copy of another method, both fail the test above."""
    (drawer / "impostor_file.py").write_text(ADDED.format(name="impostor"))
    coefficients, advantages = off_policy()
    ones = Line("impostor", {}, float).coefficient(random_rows(0, batch=16, length=16).signals())
    with pytest.raises(AssertionError, match="impostor is constant"):
        assert_all_differ({**coefficients, "impostor": ones}, advantages)
    with pytest.raises(AssertionError, match="pg_is equals copy"):
        assert_all_differ({**coefficients, "copy": coefficients["pg_is"].clone()}, advantages)
