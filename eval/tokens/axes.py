"""Which setting differs from which in what: the axes that arXiv 2607.10848 left open, one at a time around a base
setting.

Setting names as in workflows/config (study, axes, toy, real). What a record knows of itself (staleness, learning
rate, kind of update) is taken from it and must agree with this table; precisions it does not know, so they stand here
alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from eval.files import InputError

# The setting that an axis' settings are compared with; a tier has one of them.
BASES = ("A_probe", "bf16")


@dataclass(frozen=True)
class Axis:
    """An axis: the settings beside the base, and the field of a record's identity that tells them apart (or None)."""

    name: str
    settings: tuple[str, ...]
    field: str | None


AXES = (
    Axis("staleness", ("staleness_2", "staleness_4", "staleness_16"), "staleness"),
    Axis("lr", ("lr_low", "lr_high"), "lr"),
    Axis("precision", ("rollout_fp32", "rollout_fp8", "fp8_end_to_end", "fp8"), None),
)
# Training / rollout, from the settings' `train_precision` (default fp32) and `rollout_precision` (default bf16).
PRECISIONS = {
    "A_probe": "fp32 / bf16",
    "bf16": "fp32 / bf16",
    "rollout_fp32": "fp32 / fp32",
    "rollout_fp8": "fp32 / fp8",
    "fp8": "fp32 / fp8",
    "fp8_end_to_end": "fp8 / fp8",
}
# In what two settings of an axis may not differ, their own field left out.
FIXED = ("staleness", "lr", "top_k", "vocab_size", "update")


def base_of(settings: Iterable[str]) -> str | None:
    """The base among these settings, else the first, which questions about parts of a run are asked of; None for
    none."""
    found = list(settings)
    return next((name for name in BASES if name in found), found[0] if found else None)


def group(axis: Axis, setting: str, identity: Mapping[str, Any]) -> str:
    """What a setting is on an axis: `staleness 2`, `lr 0.00015`, `fp32 / fp8`."""
    return PRECISIONS[setting] if axis.field is None else f"{axis.field} {identity[axis.field]:g}"


def present(axis: Axis, identities: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The settings of an axis that are there, beside the base; none where no setting of `BASES` is.

    identities: of one record per setting. Raises InputError for a setting that does not differ from the base in the
    axis' field, or differs in another: its name would lie.
    """
    base = base_of(identities)
    if base not in BASES:
        return []
    found = [name for name in axis.settings if name in identities]
    for name in found:
        other = [field for field in FIXED if identities[name][field] != identities[base][field]]
        wanted = [axis.field] if axis.field else []
        if other != wanted:
            raise InputError(
                f"setting {name!r} differs from {base!r} in {other or 'nothing'}; "
                f"as a setting of the axis {axis.name!r} it may differ in {wanted or 'its precisions'} alone"
            )
    return found
