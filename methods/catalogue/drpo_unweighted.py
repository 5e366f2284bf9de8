"""DRPO without |A|: the same regulariser for every token, however small its advantage.

    objective  r A - mu (r - 1)^2 / (2 delta)
    g = r · (A - (pi - mu) / delta)

A token with A = 0 is still pulled back to mu, and one with a small |A| is held tighter than by DRPO.
Source: arXiv 2606.09821 Fig. 4, the ablation of the |A| in Eq. 8: worse and unstable [S]; delta = 12.5 as released
for DRPO [F].
Shapes: signals [B, T] to g [B, T]. Detached: all, which gives the same gradient as differentiating the objective.
Public code: none seen.
"""

from __future__ import annotations

from torch import Tensor

from methods import Signals, probability, register
from methods.catalogue import drpo
from methods.masks import capped_ratio


@register("drpo_unweighted", title="DRPO without |A|", source="arXiv 2606.09821, Fig. 4", mark="S", config=drpo.Config)
def coefficient(signals: Signals, config: drpo.Config) -> Tensor:
    """g = min(r, C) (A - (pi - mu) / delta), [B, T]."""
    shift = probability(signals.logp_pi) - probability(signals.logp_mu)
    return capped_ratio(signals, config.ratio_cap) * (signals.advantages - shift / config.delta)
