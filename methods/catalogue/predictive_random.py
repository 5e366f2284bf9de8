"""Random mask (control): as many tokens dropped outside the region as a reference mask drops, but drawn by chance.

    g = min(r, C) · A · M,   M = 0 where  D > delta  and  the token is drawn,  else 1
    drawn: for each sign of A, the q outside tokens with the smallest uniforms, q = number of those the reference drops

What is left of a mask's effect under this control comes from how many tokens it drops, not from which. D is DPPO's
Top-K KL; the reference reads the sampled ratio or the predicted direction of a tail rule.
Source: ours [N]; D, delta = 0.15 and C = 5 as arXiv 2607.10848 runs its masks [S].
Shapes: signals [B, T], uniforms [B, T] and support [B, T, K + 1] to g [B, T]. Detached: everything.
Public code: none. Counts are taken over the mini-batch; on parts of one they match the reference part by part.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from methods import Needs, Signals, check_choice, register
from methods.directions import TAIL_RULES, predictive_direction, random_direction, ratio_direction
from methods.masks import TopKMaskConfig, masked_coefficient, outside_region, topk_divergence
from methods.measures import FORWARD_KL
from methods.support import with_support_rule

REFERENCES = ("ratio", *TAIL_RULES)


@dataclass(frozen=True)
class Config(TopKMaskConfig):
    reference: str = "aggregated"
    """The direction whose share of dropped tokens is matched: ratio, or a tail rule."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("reference", self.reference, REFERENCES)


def needs(config: Config) -> Needs:
    """Seeded numbers, the mini-batch, and what the reference needs."""
    own = Needs.TOP_K | Needs.RANDOM | Needs.MINI_BATCH
    return own | Needs.SUM_PI_SQUARED if config.reference == "collision" else own


@register(
    "predictive_random",
    title="Random mask at a matched rate (control)",
    source="this work, control for arXiv 2607.10848, Eq. 13",
    mark="N",
    config=Config,
    needs=needs,
)
def coefficient(signals: Signals, config: Config) -> Tensor:
    """g, [B, T]."""
    signals = with_support_rule(signals, config.support)
    distance = topk_divergence(signals, FORWARD_KL)
    if config.reference == "ratio":
        reference = ratio_direction(signals)
    else:
        reference = predictive_direction(signals, FORWARD_KL, config.reference)  # type: ignore[arg-type]
    outside = outside_region(signals.advantages, distance, config.delta) & signals.response_mask
    return masked_coefficient(
        signals, config, divergence=distance, direction=random_direction(signals, outside, reference)
    )
