"""The columns of a token record: one row per response token whose state was looked at around an optimiser step.

Written by `methods.backend.tokens`, read by `eval.tokens`; no reader accepts another version.
Units: log-probs and Kullback-Leibler divergences in nats, directions in divergence per unit of logit step.
"""

from __future__ import annotations

from collections.abc import Sequence

from methods.directions import TAIL_RULES

VERSION = 2
MEASURES = ("forward_kl", "tv", "reverse_kl")
SWEEP_MEASURE = "forward_kl"
# Lengths, per unit of A min(r, C), of the single-token logit steps that the finite-step criterion is evaluated at.
STEPS = (0.1, 0.3, 1.0)

# Which token of which response of which mini-batch.
POSITION = {
    "step": "int32",  # training step
    "mini_batch": "int16",  # of the step, from 0
    "response": "int32",  # row of the training batch
    "position": "int16",  # in the response, from 0
    "token": "int32",  # sampled id
    "length": "int16",  # tokens of the response
    "age": "int16",  # of the rollout policy, in weight syncs
    "sampled_row": "bool",  # the response is kept whole, with its support
}
SIGNALS = {
    "advantage": "float32",
    "logp_pi": "float32",  # before the step
    "logp_mu": "float32",  # as the rollout engine recorded it
    "logp_mu_forward": "float32",  # of the same weights in one forward pass, from which the full truth is taken
    "sum_pi_squared": "float32",
    "entropy": "float32",
    "top_mass_mu": "float32",  # of the K candidates
    "coefficient": "float32",  # g of the running method
    "keep": "bool",  # g != 0 (and A != 0)
}
SUPPORT = {"support_ids": "list<int32>", "support_logp_mu": "list<float32>", "support_logp_pi": "list<float32>"}
STEP_SIZES = {
    "own_step": "float32",  # c of the single-token step c (e_k - pi) that moves log pi_k as the real step did
    "own_step_change": "float32",  # exact change of the full forward KL under that step alone
    "batch_first_order": "float32",  # <dD/dz, z' - z>: the real step without its curvature, full forward KL
}


def divergence(measure: str, where: str, when: str) -> str:
    """Column of a divergence: where is `full` or `reduced` (recorded top K), when is `before` or `after`."""
    return f"{where}_{measure}_{when}"


def direction(measure: str, rule: str) -> str:
    """Column of a predicted direction; the rule is `full` or a tail rule on the recorded top K."""
    return f"direction_{measure}_{rule}"


def sweep(k: int, rule: str | None = None) -> str:
    """Column of the direction with the K likeliest tokens of mu, or (no rule) of the reduced divergence."""
    return f"k{k}_divergence" if rule is None else f"k{k}_direction_{rule}"


def finite_step(size: float) -> str:
    """Column of the exact change of the full forward KL for a single-token step of that size times A min(r, C)."""
    return f"finite_step_{size:g}"


def columns(ks: Sequence[int]) -> dict[str, str]:
    """All columns, in order, with their types."""
    measured: dict[str, str] = {}
    for measure in MEASURES:
        for where in ("full", "reduced"):
            for when in ("before", "after"):
                measured[divergence(measure, where, when)] = "float32"
        for rule in ("full", *TAIL_RULES):
            measured[direction(measure, rule)] = "float32"
    measured |= {"certificate_low": "float32", "certificate_high": "float32"}
    measured |= {finite_step(size): "float32" for size in STEPS}
    for k in ks:
        measured[sweep(k)] = "float32"
        measured |= {sweep(k, rule): "float32" for rule in TAIL_RULES}
    return POSITION | SIGNALS | measured | STEP_SIZES | SUPPORT
