"""Metrics over tokens, weighted by tokens: sums, counts and extremes that add up over any split of a batch.

verl averages the numbers a loss returns over micro- and mini-batches, whatever they are; these are accumulated as
sums and turned into means, shares and quantiles once per training step.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from methods.directions import predictive_direction, ratio_direction
from methods.masks import topk_divergence
from methods.measures import FORWARD_KL
from methods.signals import Signals
from methods.support import masses

# Divergence histogram: 32 bins per factor of ten from 1e-8 to 1e2, so a quantile is right to 7.5 per cent.
_BINS_PER_DECADE, _LOWEST, _DECADES = 32, -8, 10
QUANTILES = (0.5, 0.9, 0.99)
# Of a token that one policy holds impossible, in nats: from here on exp is exactly 0 in float32.
IMPOSSIBLE_GAP = 104.0
# Ends of the names of what is no mean over tokens or share of them: extremes, quantiles, counts.
NOT_AVERAGES = ("max", "min", "/response", "/active", "_tokens", *(f"/q{round(100 * q)}" for q in QUANTILES))


@dataclass
class TokenMetrics:
    """Accumulates observations of one training step. `radius`: of the diagnostics, the same for all methods."""

    radius: float = 0.15
    sums: dict[str, float] = field(default_factory=dict)
    highest: dict[str, float] = field(default_factory=dict)
    histogram: Tensor = field(default_factory=lambda: torch.zeros(_BINS_PER_DECADE * _DECADES + 2, dtype=torch.float64))

    def observe(self, signals: Signals, coefficient: Tensor) -> None:
        """Add one micro-batch: sanitised signals and the method's g, both [B, T]."""
        mask = signals.response_mask
        advantages, ratio = signals.advantages, signals.ratio()
        active = mask & (advantages != 0)
        self._add("tokens", mask)
        self._add("active", active)
        for sign, chosen in (("positive", active & (advantages > 0)), ("negative", active & (advantages < 0))):
            self._add(f"active_{sign}", chosen)
            self._add(f"dropped_{sign}", chosen & (coefficient == 0))
        self._add("pulled_back", active & (coefficient * advantages < 0))
        self._add("ratio", torch.where(mask, ratio, 0.0))
        self._highest("ratio_max", ratio, mask)
        self._highest("ratio_min", -ratio, mask)
        gap = _gap(signals.logp_pi, signals.logp_mu)
        self._add("gap_sampled", torch.where(mask, gap, 0.0))
        self._highest("gap_sampled", gap, mask)
        if signals.entropy is not None:
            self._add("entropy", torch.where(mask, signals.entropy, 0.0))
        if signals.support is not None:
            self._observe_support(signals, mask, active)

    def _observe_support(self, signals: Signals, mask: Tensor, active: Tensor) -> None:
        support = signals.support
        assert support is not None
        # A token that pi holds impossible is at an infinite distance; it counts as the histogram's last bin does.
        divergence = topk_divergence(signals, FORWARD_KL).clamp(max=10.0 ** (_LOWEST + _DECADES))
        self._add("divergence", torch.where(mask, divergence, 0.0))
        self._highest("divergence", divergence, mask)
        place = (divergence.clamp(min=10.0**_LOWEST).log10() - _LOWEST) * _BINS_PER_DECADE
        bins = place.floor().long().clamp(0, _BINS_PER_DECADE * _DECADES) + 1
        bins = torch.where(divergence < 10.0**_LOWEST, 0, bins)[mask]
        self.histogram += torch.bincount(bins.flatten(), minlength=len(self.histogram)).double()
        outside = active & (divergence > self.radius)
        predicted = torch.sign(predictive_direction(signals, FORWARD_KL, "aggregated"))
        self._add("outside", outside)
        self._add("disagreement", outside & (predicted != torch.sign(ratio_direction(signals))))
        held = masses(support)
        self._add("mass_mu", torch.where(mask, held.mu.sum(-1), 0.0))
        self._add("mass_pi", torch.where(mask, held.pi.sum(-1), 0.0))
        gap = torch.where(support.valid, _gap(support.logp_pi, support.logp_mu), 0.0).amax(-1)
        self._add("gap_topk", torch.where(mask, gap, 0.0))
        self._highest("gap_topk", gap, mask)

    def merge(self, other: TokenMetrics) -> None:
        """Add another accumulator's observations (of a rank, or of a later update)."""
        for name, value in other.sums.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
        for name, value in other.highest.items():
            self.highest[name] = max(self.highest.get(name, -torch.inf), value)
        self.histogram += other.histogram

    def gather(self) -> TokenMetrics:
        """All ranks' observations, merged in the order of the ranks; the same on each of them."""
        ranks = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
        if ranks == 1:
            return self
        parts: list[TokenMetrics | None] = [None] * ranks
        torch.distributed.all_gather_object(parts, self)
        whole = TokenMetrics(radius=self.radius)
        for part in parts:
            assert part is not None
            whole.merge(part)
        return whole

    def summary(self) -> dict[str, float]:
        """Final numbers by metric name; empty without tokens. Shares are of active tokens (A != 0)."""
        s, tokens, active = self.sums, self.sums.get("tokens", 0.0), self.sums.get("active", 0.0)
        if not tokens:
            return {}
        dropped = s["dropped_positive"] + s["dropped_negative"]
        out = {
            "tokens/response": tokens,
            "tokens/active": active,
            "mask/fraction": _share(dropped, active),
            "mask/fraction_positive": _share(s["dropped_positive"], s["active_positive"]),
            "mask/fraction_negative": _share(s["dropped_negative"], s["active_negative"]),
            "weights/negative_share": _share(s["pulled_back"], active),
            "ratio/mean": s["ratio"] / tokens,
            "ratio/max": self.highest["ratio_max"],
            "ratio/min": -self.highest["ratio_min"],
            "gap/sampled_mean": s["gap_sampled"] / tokens,
            "gap/sampled_max": self.highest["gap_sampled"],
        }
        if "entropy" in s:
            out["entropy/mean"] = s["entropy"] / tokens
        if "divergence" in s:
            out |= {
                "kl/topk_mean": s["divergence"] / tokens,
                "divergence/max": self.highest["divergence"],
                "divergence/outside_share": _share(s["outside"], active),
                "direction/disagreement": _share(s["disagreement"], s["outside"]),
                "direction/disagreement_tokens": s["disagreement"],
                "support/mass_mu": s["mass_mu"] / tokens,
                "support/mass_pi": s["mass_pi"] / tokens,
                "gap/topk_mean": s["gap_topk"] / tokens,
                "gap/topk_max": self.highest["gap_topk"],
            }
            out |= {f"divergence/q{round(100 * q)}": self._quantile(q) for q in QUANTILES}
        return out

    def averages(self) -> dict[str, float]:
        """Those of `summary` that stay what they are where a mean is taken over parts of about equal size."""
        return {name: value for name, value in self.summary().items() if not name.endswith(NOT_AVERAGES)}

    def _quantile(self, q: float) -> float:
        """Geometric middle of the histogram bin that holds the q-quantile; 0 below the lowest edge."""
        cumulated = self.histogram.cumsum(0)
        place_of = int(torch.searchsorted(cumulated, q * cumulated[-1]))
        return 0.0 if place_of == 0 else 10.0 ** (_LOWEST + (place_of - 0.5) / _BINS_PER_DECADE)

    def _add(self, name: str, values: Tensor) -> None:
        self.sums[name] = self.sums.get(name, 0.0) + float(values.sum(dtype=torch.float64))

    def _highest(self, name: str, values: Tensor, mask: Tensor) -> None:
        top = float(torch.where(mask, values, -torch.inf).amax()) if mask.any() else -torch.inf
        self.highest[name] = max(self.highest.get(name, -torch.inf), top)


def _gap(logp_pi: Tensor, logp_mu: Tensor) -> Tensor:
    """|log pi - log mu|, finite: shape of the inputs; two impossible tokens agree."""
    gap = (logp_pi - logp_mu).abs()
    return torch.where(logp_pi == logp_mu, 0.0, gap).nan_to_num(nan=torch.nan, posinf=IMPOSSIBLE_GAP)


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
