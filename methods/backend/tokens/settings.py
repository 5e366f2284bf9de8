"""Settings of a run's token record: `tokens:` of a setting."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

UPDATES = ("unmasked", "own")
# The method whose step `unmasked` takes.
PROBE = "pg_is"


class TokenSettingsError(ValueError):
    """A setting is outside its range; the message names field, value and what is allowed."""


@dataclass(frozen=True)
class TokenSettings:
    """What is recorded, around which updates.

    update: `unmasked` takes the step of PG-IS capped at ratio_cap on a snapshot and undoes it, so that the training is
    as without a record; `own` looks at the run's own step. The paper (arXiv 2607.10848, 4.2) does not say which it
    applied, and it decides the result [N].
    every: of the run's mini-batches, each n-th; prime to `mini_batches`, so that all places in a step come up.
    first_step: training steps before it are not recorded. floor: tokens whose divergence (the largest of the reduced
    ones) is above it are kept, with A != 0; share: of the responses kept whole, with their support, whatever their
    divergence. ks: sizes of the K sweep, from the full distributions.
    """

    update: str = "unmasked"
    every: int = 3
    first_step: int = 1
    floor: float = 0.02
    share: float = 0.05
    ks: tuple[int, ...] = (1, 2, 5, 10, 20, 50)
    ratio_cap: float = 5.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "ks", tuple(self.ks))
        if self.update not in UPDATES:
            raise TokenSettingsError(f"tokens.update = {self.update!r}: allowed are {', '.join(UPDATES)}")
        for name in ("every", "first_step"):
            value = getattr(self, name)
            if not _integer(value) or value < 1:
                raise TokenSettingsError(f"tokens.{name} = {value!r}: allowed is an integer >= 1")
        for name, low, high in (("floor", 0.0, math.inf), ("share", 0.0, 1.0), ("ratio_cap", 1.0, math.inf)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
                raise TokenSettingsError(f"tokens.{name} = {value!r}: allowed is a number from {low:g} to {high:g}")
        if not all(_integer(k) and k >= 1 for k in self.ks):
            raise TokenSettingsError(f"tokens.ks = {list(self.ks)!r}: allowed are integers >= 1")


def _integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
