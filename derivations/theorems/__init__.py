"""All theorems, in reading order. A new one is a new file here and a line below."""

from __future__ import annotations

from importlib import import_module

IN_READING_ORDER = (
    "softmax_step",
    "any_divergence",
    "centring",
    "predictive_direction",
    "local_global_split",
    "measure_slopes",
    "ratio_thresholds",
    "disagreement",
    "agreement_certificate",
    "binary_measures",
    "finite_step",
    "reduced_bounds",
    "any_reduced",
    "reduced_tail",
    "reduced_measures",
    "aggregated_tail",
    "uniform_tail",
    "tail_gap",
    "tail_collision",
    "finite_step_topk",
    "full_interval",
    "interval_rounding",
    "drpo_coefficient",
    "drpo_bounds",
    "drpo_stationary",
    "expected_regulariser",
    "mask_drpo",
    "spo_weight",
    "penalties",
    "ppo_mask",
    "finite_horizon",
    "counterexamples",
)

for _name in IN_READING_ORDER:
    import_module(f"{__name__}.{_name}")
