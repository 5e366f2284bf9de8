"""One run's counts and rates. O: active tokens with D > delta; Q: those of O on which two criteria disagree.

On Q exactly one of the two keeps a token, so the keep sets K_X and K_Y split it; unsafe-keep of X is the share of K_X
whose divergence rose (arXiv 2607.10848, 4.2 [S]; the denominator by our reckoning, see `unsafe_keep`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval.tokens.criteria import Flags


@dataclass(frozen=True)
class Rates:
    """Counts of one run, and the rates they give; a rate of nothing is nan.

    unsafe_keep, corrective_keep: of the criterion's kept tokens in Q, those whose D rose or fell; unsafe_drop: of the
    tokens it drops in Q, those whose D fell (they should have been kept). `_ratio`: the same of the ratio criterion.
    sign_accuracy: over all of O. base_rate: share of O whose D rose.
    """

    outside: int
    disagreement: int
    kept: int
    kept_ratio: int
    unsafe: int
    unsafe_ratio: int
    corrective: int
    corrective_ratio: int
    right: int
    right_ratio: int
    rose: int

    @property
    def unsafe_keep(self) -> float:
        """#{K_X: dD > 0} / #K_X: the paper's complements (65.8, 63.1) rule out #Q as the denominator."""
        return _share(self.unsafe, self.kept)

    @property
    def unsafe_keep_ratio(self) -> float:
        return _share(self.unsafe_ratio, self.kept_ratio)

    @property
    def gap(self) -> float:
        """unsafe-keep of the criterion minus that of the ratio; nan where either keeps nothing."""
        return self.unsafe_keep - self.unsafe_keep_ratio

    @property
    def unsafe_drop(self) -> float:
        """What X drops in Q is what the ratio keeps there."""
        return _share(self.corrective_ratio, self.kept_ratio)

    @property
    def accuracy_gain(self) -> float:
        """Sign accuracy over O of the criterion minus that of the ratio."""
        return _share(self.right - self.right_ratio, self.outside)

    def row(self) -> dict[str, Any]:
        """All counts and rates by name."""
        return asdict(self) | {
            "disagreement_share": _share(self.disagreement, self.outside),
            "unsafe_keep": self.unsafe_keep,
            "unsafe_keep_ratio": self.unsafe_keep_ratio,
            "gap": self.gap,
            "corrective_keep": _share(self.corrective, self.kept),
            "corrective_keep_ratio": _share(self.corrective_ratio, self.kept_ratio),
            "unsafe_drop": self.unsafe_drop,
            "sign_accuracy": _share(self.right, self.outside),
            "sign_accuracy_ratio": _share(self.right_ratio, self.outside),
            "accuracy_gain": self.accuracy_gain,
            "base_rate": _share(self.rose, self.outside),
        }


def merge(rows: Iterable[Mapping[str, Any]]) -> Rates:
    """The rates of disjoint parts of one run's tokens taken together, out of the counts in their rows (`Rates.row`)."""
    found = list(rows)
    return Rates(**{field.name: sum(int(row[field.name]) for row in found) for field in fields(Rates)})


def rates(outside: Flags, outward: Flags, outward_ratio: Flags, change: NDArray[np.floating]) -> Rates:
    """Counts over tokens: bool flags and the realised change of D, all of one length."""
    rose, fell = change > 0, change < 0
    disagreement = outside & (outward != outward_ratio)
    kept, kept_ratio = disagreement & ~outward, disagreement & ~outward_ratio
    counted = {
        "outside": outside,
        "disagreement": disagreement,
        "kept": kept,
        "kept_ratio": kept_ratio,
        "unsafe": kept & rose,
        "unsafe_ratio": kept_ratio & rose,
        "corrective": kept & fell,
        "corrective_ratio": kept_ratio & fell,
        "right": outside & ((outward & rose) | (~outward & fell)),
        "right_ratio": outside & ((outward_ratio & rose) | (~outward_ratio & fell)),
        "rose": outside & rose,
    }
    return Rates(**{name: int(flags.sum()) for name, flags in counted.items()})


def _share(part: float, whole: float) -> float:
    return part / whole if whole else math.nan
