"""Claim: code, figures, report and proofs explain a provenance mark in the same words.

Not covered: whether a formula deserves its mark.
"""

from __future__ import annotations

from typing import get_args

from derivations import theorem
from methods import provenance, registry


def test_the_proofs_marks_are_the_losses_marks() -> None:
    assert theorem.MARKS == provenance.MARKS


def test_each_mark_is_explained() -> None:
    assert tuple(provenance.MARKS) == get_args(provenance.Mark)
    assert {registry.get(name).mark for name in registry.names()} <= set(provenance.MARKS)
