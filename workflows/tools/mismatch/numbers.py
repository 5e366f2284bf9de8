"""Two policies at the same tokens as numbers: one row of the table, and the profile over the token's probability.

Shapes: n response tokens, K candidates, S = K + 1 support slots.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from methods.measures import FORWARD_KL, reduced_value
from methods.signals import Support
from methods.support import distinct, masses
from workflows.tools.mismatch.policies import Rollout, Trainer

# Bins of the profile over the probability of the sampled token, and its quantiles of the ratio.
EDGES = (0.0, 1e-3, 1e-2, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.95, 1.0)
QUANTILES = (0.05, 0.5, 0.95)


def gap(trainer: Trainer, rollout: Rollout) -> dict[str, Any]:
    """The numbers of one row; all are over response tokens, log-probs in nats."""
    mu, pi = rollout.logp, trainer.logp.gather(-1, rollout.ids)
    valid, candidates = distinct(rollout.ids), rollout.ids[:, :-1]
    held = masses(Support(ids=rollout.ids, logp_mu=mu, logp_pi=pi, valid=valid))
    retained = torch.where(valid, (pi - mu).abs(), 0.0).amax(-1)
    common = _in_common(candidates, trainer.logp.topk(candidates.shape[-1], -1).indices)
    row: dict[str, Any] = {"tokens": len(mu)}
    for name, values in (("logp_sampled", (pi - mu).abs()[:, -1]), ("logp_topk", retained)):
        row |= {
            f"{name}_mean": float(values.double().mean()),
            f"{name}_p99": float(values.double().quantile(0.99)),
            f"{name}_max": float(values.max()),
        }
    row["prob_sampled_mean"] = float((pi.exp() - mu.exp()).abs()[:, -1].double().mean())
    row["reduced_kl_mean"] = float(
        reduced_value(FORWARD_KL, held.mu, held.pi, held.mu_tail, held.pi_tail).double().mean()
    )
    row["topk_shared"] = float(common.double().mean())
    row["routing_differences"] = None
    if trainer.experts is not None and rollout.experts is not None:
        row["routing_differences"] = float((trainer.experts != rollout.experts).any(-1).double().mean())
    return row


def _in_common(one: Tensor, other: Tensor) -> Tensor:
    """Share of the ids of a row that the other row holds too: [n, K] twice to [n]."""
    return (one.unsqueeze(-1) == other.unsqueeze(-2)).any(-1).float().mean(-1)


def profile_of(trainer: Trainer, rollout: Rollout) -> Iterator[dict[str, Any]]:
    """Ratio and |pi - mu| of the sampled tokens by their probability mu, a row per bin of EDGES that holds any.

    The DPPO paper's Figure 2 (arXiv 2602.04879) [F]: rare tokens have extreme ratios and tiny shifts.
    """
    pi, mu = trainer.logp.gather(-1, rollout.ids[:, -1:]).squeeze(-1).double(), rollout.logp[:, -1].double()
    ratio, shift, mass = (pi - mu).exp(), (pi.exp() - mu.exp()).abs(), mu.exp()
    for low, high in zip(EDGES[:-1], EDGES[1:], strict=True):
        inside = (mass > low) & (mass <= high)
        if inside.any():
            quantiles = {f"ratio_q{round(100 * q):02d}": float(ratio[inside].quantile(q)) for q in QUANTILES}
            shifts = {"shift_mean": float(shift[inside].mean()), "shift_q95": float(shift[inside].quantile(0.95))}
            yield {"mu_low": low, "mu_high": high, "tokens": int(inside.sum())} | quantiles | shifts
