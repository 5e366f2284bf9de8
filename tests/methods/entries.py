"""Which objective each method's g is the derivative of, option by option: what the definition tests go through."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from tests.methods import objectives as o
from tests.methods import reference
from tests.methods.batches import Data
from tests.methods.objectives import Objective


@dataclass(frozen=True)
class Entry:
    """A method with options and the objective whose derivative its g is."""

    method: str
    options: dict[str, Any]
    build: Callable[[Data], Objective] = field(compare=False)
    per_response: bool = False

    @property
    def label(self) -> str:
        return "-".join([self.method, *(f"{name}={value}" for name, value in self.options.items())])


ENTRIES = (
    Entry("pg_is", {}, o.pg_is),
    Entry("pg_tis", {}, o.pg_tis),
    Entry("pg_tis", {"ratio_cap": 1.1}, lambda d: o.pg_tis(d, 1.1)),
    Entry("cispo", {}, o.cispo),
    Entry("cispo", {"eps_low": 0.2, "eps_high": 0.28}, lambda d: o.cispo(d, 0.2, 0.28)),
    Entry("ppo_clip", {}, o.ppo),
    Entry("ppo_clip", {"eps_low": 0.3, "eps_high": 0.1}, lambda d: o.ppo(d, 0.3, 0.1)),
    Entry("ppo_clip", {"dual_clip": 1.5}, lambda d: o.dual(d, 1.5)),
    Entry("grpo", {}, o.ppo),
    Entry("ppo_clip_higher", {}, o.clip_higher),
    Entry("minirl", {}, o.minirl),
    Entry("minirl", {"eps_low": 0.1, "eps_high": 0.5, "ratio_cap": 1.2}, lambda d: o.minirl(d, 0.1, 0.5, 1.2)),
    Entry("minirl_tis", {}, lambda d: o.minirl(d, cap=3.0)),
    Entry("spo", {}, o.spo),
    Entry("spo", {"eps": 0.2}, lambda d: o.spo(d, 0.2)),
    Entry("gspo", {}, o.gspo, per_response=True),
    Entry("gspo", {"eps_low": 0.05, "eps_high": 0.1}, lambda d: o.gspo(d, 0.05, 0.1), per_response=True),
    Entry("geo_mean", {}, o.geo_mean, per_response=True),
    Entry("geo_mean", {"eps_low": 0.1, "eps_high": 0.05}, lambda d: o.geo_mean(d, 0.1, 0.05), per_response=True),
    Entry("sapo", {}, o.sapo),
    Entry("sapo", {"tau_pos": 3.0, "tau_neg": 0.5}, lambda d: o.sapo(d, 3.0, 0.5)),
    Entry("dro", {}, o.dro),
    Entry("dro", {"beta": 2.0}, lambda d: o.dro(d, 2.0)),
    Entry("icepop", {}, lambda d: o.mis(d, lower=0.5, upper=5.0)),
    Entry("icepop", {"lower": 0.9, "upper": 1.1}, lambda d: o.mis(d, lower=0.9, upper=1.1)),
    Entry("tis", {}, o.tis),
    Entry("tis", {"level": "sequence", "upper": 1.1}, lambda d: o.tis(d, "sequence", 1.1)),
    Entry("tis", {"level": "geometric", "upper": 1.01}, lambda d: o.tis(d, "geometric", 1.01)),
    Entry("mis", {}, o.mis),
    Entry("mis", {"level": "sequence", "lower": 0.5}, lambda d: o.mis(d, "sequence", 0.5)),
    Entry("mis", {"level": "geometric", "lower": 0.98, "upper": 1.02}, lambda d: o.mis(d, "geometric", 0.98, 1.02)),
    Entry("trm_mean", {}, o.trm_mean),
    Entry("trm_mean", {"delta": 0.1}, lambda d: o.trm_mean(d, 0.1)),
    Entry("trm_max", {}, o.trm_max),
    Entry("trm_max", {"statistic": "log_ratio", "delta": 0.5}, lambda d: o.trm_max_sampled(d, 0.5)),
    Entry("cppo", {}, lambda d: o.cppo_adaptive(d, d.per_token(reference.topk_tv))),
    Entry("cppo", {"measure": "binary_tv", "d": 0.1, "delta": 0.2}, lambda d: o.cppo_adaptive(d, o.shift(d), 0.2, 0.1)),
    Entry(
        "cppo",
        {"measure": "binary_tv", "budget": 0.015, "w_min": 0.5},
        lambda d: o.cppo(d, o.shift(d), 0.15, 0.5, lambda _: 0.015),
    ),
    Entry("ripo", {}, o.ripo),
    Entry("ripo", {"delta": 0.01, "lowest": 0.9, "highest": 1.2}, lambda d: o.ripo(d, 0.01, 0.9, 1.2)),
    Entry("sat", {}, o.sat),
    Entry("sat", {"quantile": 0.5, "exponent": 1.0, "eps_low": 0.6}, lambda d: o.sat(d, 0.6, 0.28, 0.5, 1.0)),
    Entry("dppo_negative", {"threshold": 0.1}, lambda d: o.negative(d, 0.1)),
    Entry("relaxed_clip", {}, o.relaxed),
    Entry("relaxed_clip", {"side": "high"}, lambda d: o.relaxed(d, sides="high")),
    Entry("relaxed_clip", {"side": "low", "alpha": 0.3}, lambda d: o.relaxed(d, 0.3, "low")),
    Entry("drpo", {}, o.drpo),
    Entry("mask_drpo", {}, o.mask_drpo),
    Entry("mask_drpo", {"delta": 0.2, "radius": 0.05}, lambda d: o.mask_drpo(d, 0.2, 0.05)),
    Entry("drpo_unweighted", {}, lambda d: o.drpo(d, size=torch.ones_like(d.A))),
    Entry("drpo_unweighted", {"delta": 0.2}, lambda d: o.drpo(d, 0.2, size=torch.ones_like(d.A))),
    Entry("predictive_drpo", {}, lambda d: o.predictive_drpo(d, lambda t: reference.direction_topk(t, "uniform"))),
    Entry(
        "predictive_drpo",
        {"tail": "aggregated", "delta": 0.4},
        lambda d: o.predictive_drpo(d, lambda t: reference.direction_topk(t, "aggregated"), 0.4),
    ),
    Entry("penalty_kl", {}, lambda d: o.penalty(d, lambda r: r * r.log())),
    Entry("penalty_kl", {"direction": "forward", "coefficient": 0.5}, lambda d: o.penalty(d, lambda r: -r.log(), 0.5)),
    Entry("penalty_tv", {}, lambda d: o.penalty(d, lambda r: (r - 1).abs() / 2)),
    Entry("penalty_k3", {}, lambda d: o.penalty(d, lambda r: r - 1 - r.log())),
    Entry(
        "penalty_k3",
        {"coefficient": 2.0, "advantage_weighted": False},
        lambda d: o.penalty(d, lambda r: r - 1 - r.log(), 2.0, unweighted=True),
    ),
)
