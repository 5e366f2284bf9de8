"""Claim: every option of every method refuses nonsense with method, field, value and what is allowed.

The six methods of test_config.py have theirs there. Not covered: what an option does (test_catalogue_definitions.py).
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from methods import registry
from methods.config import MethodConfigError
from tests.methods.objectives import ENTRIES
from tests.methods.test_config import BAD, BAD_CAPS, NONSENSE

NO_FRACTION = [*NONSENSE, 1.5, 2, (0.1, 0.2)]
NO_NUMBER = [*NONSENSE, (0.1, 0.2)]
NO_WORD = ["", "nothing", 0, True, None, {}, object]
NO_FLAG = [0, 1, "true", None, {}, object]
BAND = {"eps_low": NO_FRACTION, "eps_high": NO_NUMBER}
CLIP = {**BAND, "dual_clip": BAD_CAPS, "ratio_cap": BAD_CAPS}
DRPO = {"delta": NO_NUMBER, "ratio_cap": BAD_CAPS}
PENALTY = {"coefficient": NO_NUMBER, "advantage_weighted": NO_FLAG}
NOT_NONE = [x for x in NO_NUMBER if x is not None]

REFUSED: dict[str, dict[str, list[Any]]] = {
    "pg_tis": {"ratio_cap": BAD_CAPS},
    "cispo": BAND,
    "ppo_clip": CLIP,
    "grpo": CLIP,
    "minirl": {**BAND, "ratio_cap": BAD_CAPS},
    "minirl_tis": {**BAND, "ratio_cap": BAD_CAPS},
    "spo": {"eps": NO_NUMBER},
    "gspo": BAND,
    "geo_mean": BAND,
    "sapo": {"tau_pos": NO_NUMBER, "tau_neg": NO_NUMBER},
    "dro": {"beta": NO_NUMBER},
    "icepop": {**BAND, "lower": [-0.1, 5.0, 6, *NO_WORD[3:]], "upper": [*NO_NUMBER, 0.5]},
    "tis": {**BAND, "upper": NO_NUMBER, "level": NO_WORD},
    "mis": {**BAND, "lower": [-0.1, 2.0, "x", True, {}], "upper": NO_NUMBER, "level": NO_WORD},
    "trm_max": {"delta": NO_NUMBER, "statistic": NO_WORD, "ratio_cap": BAD_CAPS},
    "trm_mean": {"delta": NO_NUMBER, "ratio_cap": BAD_CAPS},
    "cppo": {
        "delta": NO_NUMBER,
        "w_min": NO_FRACTION,
        "d": NO_NUMBER,
        "budget": NOT_NONE,
        "measure": NO_WORD,
        "ratio_cap": BAD_CAPS,
    },
    "ripo": {"delta": NO_NUMBER, "lowest": NO_FRACTION, "highest": [*BAD_CAPS, None], "ratio_cap": BAD_CAPS},
    "sat": {**BAND, "quantile": NO_FRACTION, "exponent": NO_NUMBER, "ratio_cap": BAD_CAPS},
    "dppo_negative": {"threshold": NO_FRACTION, "ratio_cap": BAD_CAPS},
    "relaxed_clip": {**CLIP, "alpha": [-0.1, 1.1, "x", True, None, {}], "side": NO_WORD},
    "mask_drpo": {**DRPO, "radius": NO_NUMBER},
    "drpo_unweighted": DRPO,
    "predictive_drpo": {**DRPO, "measure": NO_WORD, "tail": NO_WORD},
    "penalty_kl": {**PENALTY, "direction": NO_WORD},
    "penalty_tv": PENALTY,
    "penalty_k3": PENALTY,
}

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
    "trm_max": {"delta": 0.1, "statistic": "topk_kl", "ratio_cap": None},
    "trm_mean": {"delta": 0.002, "ratio_cap": None},
    "cppo": {"delta": 0.15, "w_min": 0.8, "d": 0.02, "budget": None, "measure": "topk_tv", "ratio_cap": None},
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


@pytest.mark.parametrize("method", sorted(REFUSED))
def test_a_bad_value_is_refused(method: str) -> None:
    for field, values in REFUSED[method].items():
        for value in values:
            with pytest.raises(MethodConfigError) as error:
                registry.get(method).configure({field: value})
            message = str(error.value)
            # Of two bounds that contradict each other either may be named.
            assert message.startswith((f"method {method}: {field} = ", f"method {method}: lower = ")), (field, value)
            assert "allowed is" in message, (field, value)


def test_every_option_is_tried() -> None:
    options = {name: {f.name for f in fields(registry.get(name).config_type)} for name in REFUSED}
    assert options == {name: set(bad) for name, bad in REFUSED.items()}
    assert set(REFUSED) | set(BAD) >= {entry.method for entry in ENTRIES}


def test_the_papers_defaults() -> None:
    assert {name: vars(registry.get(name).configure()) for name in DEFAULTS} == DEFAULTS
    assert set(DEFAULTS) == set(REFUSED)


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
