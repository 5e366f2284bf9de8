"""All theorems, in reading order. A new one is a new file here and a line below."""

from __future__ import annotations

from importlib import import_module

IN_READING_ORDER = (
    "softmax_step",
    "predictive_direction",
    "local_global_split",
    "reduced_tail",
    "aggregated_tail",
    "uniform_tail",
    "tail_gap",
    "drpo_coefficient",
    "drpo_bounds",
    "drpo_stationary",
)

for _name in IN_READING_ORDER:
    import_module(f"{__name__}.{_name}")
