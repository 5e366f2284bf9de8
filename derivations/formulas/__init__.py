"""The proved formulas as numeric functions of plain lists, for holding other implementations against them.

Nothing is typed in twice: every function evaluates the SymPy expression that its theorem proves or starts from.
V vocabulary, M = m retained tokens. Distributions are lists indexed by token (V) or by place in the support (M).

backend: "math" for floats (default) or "mpmath" for mpf numbers at mpmath's current precision.
"""

from __future__ import annotations

from derivations.formulas.directions import (
    RULES,
    direction_binary,
    direction_full,
    direction_topk,
    local_term,
)
from derivations.formulas.divergences import (
    MEASURES,
    divergence,
    divergence_binary,
    divergence_topk,
    forward_kl,
    forward_kl_topk,
)
from derivations.formulas.intervals import (
    curvature,
    finite_step_change,
    finite_step_change_topk,
    full_interval,
    interval_rounding_width,
)
from derivations.formulas.weights import (
    PENALTIES,
    drpo_objective,
    drpo_weight,
    mask_drpo_weight,
    penalised_slope,
    ppo_slope,
    spo_objective,
    spo_weight,
)

__all__ = [
    "MEASURES",
    "PENALTIES",
    "RULES",
    "curvature",
    "direction_binary",
    "direction_full",
    "direction_topk",
    "divergence",
    "divergence_binary",
    "divergence_topk",
    "drpo_objective",
    "drpo_weight",
    "finite_step_change",
    "finite_step_change_topk",
    "forward_kl",
    "forward_kl_topk",
    "full_interval",
    "interval_rounding_width",
    "local_term",
    "mask_drpo_weight",
    "penalised_slope",
    "ppo_slope",
    "spo_objective",
    "spo_weight",
]
