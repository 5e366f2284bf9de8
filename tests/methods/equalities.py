"""Pairs of methods whose gradients are the same by definition, with the options that make them so.

The one place where this is stated: the property tests of this room and the training test of the backend read it. Any
two methods that no pair joins give different gradients off-policy.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Equality:
    """Method `a` with `a_options` is method `b` with `b_options`, for every input, because of `reason`."""

    a: str
    b: str
    reason: str
    a_options: dict[str, Any] = field(default_factory=dict)
    b_options: dict[str, Any] = field(default_factory=dict)


EQUALITIES = (
    Equality("grpo", "ppo_clip", "GRPO's loss is PPO's clip; what differs is the advantage and the aggregation"),
    Equality("cispo", "pg_tis", "without a lower bound and with 1 + eps_high = C the clipped weight is min(r, C)"),
    Equality("pg_tis", "pg_is", "both are min(r, C) A", {"ratio_cap": 3.0}, {"ratio_cap": 3.0}),
    Equality("minirl", "minirl_tis", "MiniRL-TIS is MiniRL with C = 3", {"ratio_cap": 3.0}),
    Equality("ppo_clip", "ppo_clip_higher", "the same loss, other defaults", {"eps_high": 0.28, "ratio_cap": 5.0}),
    Equality("relaxed_clip", "ppo_clip_higher", "no mu is below alpha = 0", {"alpha": 0.0}),
    Equality("mis", "icepop", "IcePop is MIS at token level with its two bounds", {"lower": 0.5, "upper": 5.0}),
    Equality("mask_drpo", "pg_is", "|pi - mu| never exceeds a radius of 1", {"radius": 1.0}),
    Equality(
        "trm_max",
        "pg_is",
        "the log-ratio is limited to 20, so none is beyond",
        {"statistic": "log_ratio", "delta": 20.0},
    ),
)


def equal_by_default() -> set[frozenset[str]]:
    """Pairs of names that coincide with the options both have by default."""
    return {frozenset((pair.a, pair.b)) for pair in EQUALITIES if not (pair.a_options or pair.b_options)}
