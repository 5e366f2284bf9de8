"""Claim: the defaults of the baselines, neighbours and ablations are their papers', and pairs of options fit together.

That each option refuses nonsense is the claim of test_config.py; what it does, of test_catalogue_definitions.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from methods import registry
from methods.config import MethodConfigError
from tests.methods.entries import ENTRIES
from tests.methods.reference import LINES

DEFAULTS: dict[str, dict[str, Any]] = {
    "pg_tis": {"ratio_cap": 5.0},
    "cispo": {"eps_low": 1.0, "eps_high": 4.0},
    "ppo_clip": {"eps_low": 0.2, "eps_high": 0.2, "dual_clip": None, "ratio_cap": None},
    "grpo": {"eps_low": 0.2, "eps_high": 0.2, "dual_clip": None, "ratio_cap": None},
    "minirl": {"eps_low": 0.2, "eps_high": 0.28, "ratio_cap": None},
    "minirl_tis": {"eps_low": 0.2, "eps_high": 0.28, "ratio_cap": 3.0},
    "spo": {"eps": 12.5},
    "gspo": {"eps_low": 3e-4, "eps_high": 4e-4},
    "geo_mean": {"eps_low": 0.4, "eps_high": 0.4},
    "sapo": {"tau_pos": 1.0, "tau_neg": 1.05},
    "dro": {"beta": 0.05},
    "icepop": {"eps_low": 0.2, "eps_high": 0.2, "lower": 0.5, "upper": 5.0},
    "tis": {"eps_low": 0.2, "eps_high": 0.2, "level": "token", "upper": 2.0},
    "mis": {"eps_low": 0.2, "eps_high": 0.2, "level": "token", "lower": None, "upper": 2.0},
    "trm_max": {"delta": 0.1, "statistic": "forward_kl", "ratio_cap": None},
    "trm_mean": {"delta": 0.002, "ratio_cap": None},
    "cppo": {"delta": 0.15, "w_min": 0.8, "d": 0.02, "budget": None, "measure": "tv", "ratio_cap": None},
    "ripo": {"delta": 0.05, "lowest": 0.5, "highest": 10.0, "ratio_cap": None},
    "sat": {"eps_low": 0.2, "eps_high": 0.28, "quantile": 0.9, "exponent": 2.0, "ratio_cap": None},
    "dppo_negative": {"threshold": 0.5, "ratio_cap": None},
    "relaxed_clip": {
        "eps_low": 0.2,
        "eps_high": 0.28,
        "dual_clip": None,
        "ratio_cap": 5.0,
        "alpha": 0.1,
        "side": "both",
    },
    "mask_drpo": {"delta": 12.5, "ratio_cap": None, "radius": 0.15},
    "drpo_unweighted": {"delta": 12.5, "ratio_cap": None},
    "predictive_drpo": {"delta": 0.15, "ratio_cap": None, "measure": "forward_kl", "tail": "uniform"},
    "penalty_kl": {"coefficient": 0.04, "advantage_weighted": True, "direction": "reverse"},
    "penalty_tv": {"coefficient": 0.04, "advantage_weighted": True},
    "penalty_k3": {"coefficient": 0.04, "advantage_weighted": True},
}


def test_the_papers_defaults() -> None:
    assert {name: vars(registry.get(name).configure()) for name in DEFAULTS} == DEFAULTS
    assert set(DEFAULTS) == {entry.method for entry in ENTRIES} - {line[0] for line in LINES}


@pytest.mark.parametrize("method", ["icepop", "mis"])
def test_bounds_that_contradict_each_other_are_refused(method: str) -> None:
    for lower in (3, 2):
        with pytest.raises(MethodConfigError, match=f"method {method}: lower = {lower}: allowed is lower < upper = 2"):
            registry.get(method).configure({"lower": lower, "upper": 2})


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("relaxed_clip", {"alpha": 0, "dual_clip": 1}),
        ("relaxed_clip", {"alpha": 1.0}),
        ("icepop", {"lower": 0, "upper": 1}),
        ("cppo", {"budget": 0.015, "w_min": 1}),
        ("mis", {"level": "geometric", "lower": 0.999, "upper": 1.001}),
        ("predictive_drpo", {"measure": "tv", "tail": "collision"}),
    ],
)
def test_bounds_themselves_are_allowed(method: str, options: dict[str, Any]) -> None:
    config = registry.get(method).configure(options)
    assert {name: getattr(config, name) for name in options} == options
