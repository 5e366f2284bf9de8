"""Claim: `methods check` finds each fault that it names, and finds none in any method of the catalogue.

The faults are planted. Not covered: whether a formula is its paper's, which no check can know.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from eval.method_checks.check import check
from methods import registry
from methods.__main__ import main
from methods.config import MethodConfig, check_cap, check_positive
from methods.registry import Needs
from methods.signals import Signals


@pytest.mark.parametrize("name", registry.names())
def test_every_method_keeps_its_contract(name: str) -> None:
    assert check(name) == []


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., list[str]]]:
    """Registers a coefficient as the method `mine` and checks it."""
    registry.load_catalogue()
    monkeypatch.setattr(registry, "_METHODS", dict(registry._METHODS))

    def planted(coefficient: Any, config: type[MethodConfig] = MethodConfig, needs: Any = Needs.SAMPLED) -> list[str]:
        registry.register("mine", title="Mine", source="none", mark="N", config=config, needs=needs)(coefficient)
        return check("mine")

    yield planted


def plain(signals: Signals, _: Any) -> Tensor:
    return signals.ratio() * signals.advantages


def in_place(signals: Signals, _: Any) -> Tensor:
    return signals.advantages.mul_(2.0)


def by_the_batch(signals: Signals, _: Any) -> Tensor:
    mask = signals.response_mask
    return signals.advantages / torch.where(mask, signals.ratio(), 0.0).max().clamp(min=1.0)


def with_support(signals: Signals, _: Any) -> Tensor:
    assert signals.support is not None
    return signals.advantages * signals.support.logp_pi[..., 0].exp()


FAULTS: dict[str, tuple[Any, Needs, str]] = {
    "not detached": (lambda s, _: plain(s, _).requires_grad_(), Needs.SAMPLED, "requires a gradient"),
    "padding": (lambda s, _: plain(s, _) / s.advantages.shape[1], Needs.SAMPLED, "depends on padding: 3 more columns"),
    "empty rows": (
        lambda s, _: plain(s, _) / len(s.advantages),
        Needs.SAMPLED,
        "depends on padding: 2 more empty rows",
    ),
    "a mean over zeros": (lambda s, _: s.advantages * s.ratio().mean(-1, True), Needs.SAMPLED, "depends on padding"),
    "NaN far out": (
        lambda s, _: s.advantages * (s.logp_pi - s.logp_mu).exp() * 0.0,
        Needs.SAMPLED,
        "extreme ratios: is nan at ",
    ),
    "infinite far out": (lambda s, _: s.advantages / s.logp_pi.exp(), Needs.SAMPLED, "extreme ratios: is inf at "),
    "needs more": (
        with_support,
        Needs.SAMPLED,
        "reads signals.support, which it does not ask for: add needs=Needs.TOP_K",
    ),
    "needs less": (plain, Needs.RANDOM | Needs.SAMPLED, "declares Needs.RANDOM and does not read what it brings"),
    "no mini-batch": (plain, Needs.MINI_BATCH, "declares Needs.MINI_BATCH and no response depends on the others"),
    "the batch": (by_the_batch, Needs.SAMPLED, "a method that compares responses declares Needs.MINI_BATCH"),
    "shape": (lambda s, _: s.advantages[:, :1], Needs.SAMPLED, "returned a tensor of shape [12, 1], expected"),
    "in place": (in_place, Needs.SAMPLED, "changes signals.advantages in place"),
    "its own chance": (lambda s, _: torch.rand_like(s.advantages), Needs.SAMPLED, "another g for the same signals"),
    "the dtype": (
        lambda s, _: plain(s, _) + torch.finfo(s.logp_pi.dtype).eps ** 0.25,
        Needs.SAMPLED,
        "depends on the dtype: torch.float32 against float64",
    ),
    "raises": (lambda s, _: s.advantages @ s.advantages, Needs.SAMPLED, "raised RuntimeError with what it asks for: "),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str, plant: Callable[..., list[str]]) -> None:
    coefficient, needs, want = FAULTS[fault]
    found = plant(coefficient, needs=needs)
    assert any(want in text for text in found), found
    assert all("\n" not in text for text in found)


def test_a_sound_method_has_no_findings(plant: Callable[..., list[str]]) -> None:
    assert plant(plain) == []
    assert plant(with_support, needs=Needs.TOP_K) == []
    assert plant(by_the_batch, needs=Needs.MINI_BATCH) == []


@dataclass(frozen=True)
class Unchecked(MethodConfig):
    size: float = 1.0
    """Largest ratio."""


@dataclass(frozen=True)
class Breaking(MethodConfig):
    size: float = 1.0
    """Largest ratio."""

    def __post_init__(self) -> None:
        if not self.size > 0:
            raise ValueError("size")


@dataclass(frozen=True)
class Nullable(MethodConfig):
    size: float | None = 2.0
    """Largest ratio."""

    def __post_init__(self) -> None:
        check_cap("size", self.size)


@dataclass(frozen=True)
class Sound(MethodConfig):
    size: float = 1.0
    """Largest ratio."""

    def __post_init__(self) -> None:
        check_positive("size", self.size)


@dataclass(frozen=True)
class Silent(MethodConfig):
    """size: of a class docstring, which describes no option."""

    size: float = 1.0

    def __post_init__(self) -> None:
        check_positive("size", self.size)


@pytest.mark.parametrize(
    ("config", "want"),
    [
        (Silent, "option size is not described: write a string literal below the field"),
        (Unchecked, "option size = nan is accepted: refuse it in __post_init__"),
        (Breaking, "option size = nan: raised ValueError, expected MethodConfigError"),
        (Nullable, "option size = None is accepted, and the method raised RuntimeError"),
        (Sound, None),
    ],
)
def test_options_that_refuse_nothing_or_say_nothing_are_found(
    config: type[MethodConfig], want: str | None, plant: Callable[..., list[str]]
) -> None:
    found = plant(lambda s, c: s.ratio().clamp(max=c.size) * s.advantages, config=config)
    assert [text[: len(want)] for text in found] == [want] if want else found == []


def test_options_are_checked_as_given() -> None:
    """With the Pearson divergence in full the predictive mask needs the whole vocabulary, and says so."""
    assert check("predictive", {"measure": "chi2_pearson", "tail": "full"}) == []


def test_the_command_prints_a_line_a_finding(
    plant: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "drpo", "--option", "delta=0.15"]) == 0
    assert capsys.readouterr().out == "drpo: keeps its contract\n"
    found = plant(lambda s, _: plain(s, _) / len(s.advantages))
    assert main(["check", "mine"]) == 1
    assert capsys.readouterr().out.splitlines() == [f"mine: {text}" for text in found] != []
    assert main(["check", "drop"]) == 2
    assert capsys.readouterr().err.endswith("; did you mean 'dro' or 'drpo'?\n")
    assert main(["check", "drpo", "--option", "dleta=1"]) == 2
    assert capsys.readouterr().err.endswith("its options are: delta, ratio_cap; did you mean 'delta'?\n")
    assert main(["check", "--option", "delta=1"]) == 2


def test_list_and_show_report_a_method_that_cannot_run(
    plant: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    plant(with_support)
    want = (
        "mine: reads signals.support, which it does not ask for: add needs=Needs.TOP_K; `python -m methods check mine`"
    )
    for command in (["list"], ["show", "mine"], ["list", "--json"]):
        assert main(command) == 1
        shown = capsys.readouterr()
        assert shown.err.startswith(want) and "Mine" in shown.out
    assert main(["show", "drpo"]) == 0


def test_a_file_that_cannot_be_imported_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def load() -> None:
        raise NameError("name 'torhc' is not defined")

    monkeypatch.setattr(registry, "load_catalogue", load)
    assert main(["list"]) == 2
    assert capsys.readouterr().err.endswith(": NameError: name 'torhc' is not defined\n")


def test_not_a_number_is_no_option() -> None:
    """So that NaN in NONSENSE means what it says."""
    with pytest.raises(ValueError, match="delta = nan"):
        registry.get("drpo").configure({"delta": math.nan})
