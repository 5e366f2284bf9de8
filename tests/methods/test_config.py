"""Claim: a nonsensical option is refused before anything runs, with method, field, value and what is allowed."""

from __future__ import annotations

import math
import re
from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest

from methods import registry
from methods.config import MethodConfig, MethodConfigError, sides
from methods.registry import Needs
from tests.methods.helpers import SHIPPED

NONSENSE: list[Any] = [0, 0.0, -0.15, math.nan, math.inf, -math.inf, True, False, "0.15", None, {}, [], object]
BAD_RADII: list[Any] = [*NONSENSE, (0.1, 0.2, 0.3), (0.1,), [0.1], (0.1, 0), (-0.1, 0.2), ("a", 0.1), (0.1, None)]
BAD_WORDS: list[Any] = [*NONSENSE, "", "Uniform", "kl", ("added",)]
BAD_CAPS: list[Any] = [x for x in NONSENSE if x is not None] + [0.5, 0.999, (5.0, 5.0)]
NO_NUMBER: list[Any] = [*NONSENSE, (0.1, 0.2)]
ONE_DELTA = ("drpo", "mask_drpo", "drpo_unweighted", "predictive_drpo", "trm_max", "trm_mean", "cppo", "ripo")

# By option, for all methods; an option that allows less in one method is listed under (method, option).
BAD_VALUES: dict[str | tuple[str, str], list[Any]] = {
    "delta": BAD_RADII,
    "ratio_cap": BAD_CAPS,
    "dual_clip": BAD_CAPS,
    "eps_low": [*NONSENSE, 1.5],
    "eps_high": NONSENSE,
    "step": [*NONSENSE, (0.1, 0.2)],
    "support": BAD_WORDS,
    "measure": BAD_WORDS,
    "tail": BAD_WORDS,
    "divergence": [x for x in BAD_WORDS if x is not None],
    "fallback": [*BAD_WORDS, "full"],
    "precision": [*BAD_WORDS, "exact"],
    "reference": [*BAD_WORDS, "keep"],
    "eps": NO_NUMBER,
    "tau_pos": NO_NUMBER,
    "tau_neg": NO_NUMBER,
    "beta": NO_NUMBER,
    "upper": NO_NUMBER,
    "d": NO_NUMBER,
    "exponent": NO_NUMBER,
    "radius": NO_NUMBER,
    "coefficient": NO_NUMBER,
    "highest": [*NO_NUMBER, 0.9],
    "budget": [x for x in NO_NUMBER if x is not None],
    "lower": [x for x in NO_NUMBER if x not in (0, None)],
    "alpha": [*(x for x in NO_NUMBER if x != 0), 1.1],
    "w_min": [*NO_NUMBER, 1.1],
    "lowest": [*NO_NUMBER, 1.1],
    "quantile": [*NO_NUMBER, 1.1],
    "threshold": [*NO_NUMBER, 1.1],
    "level": BAD_WORDS,
    "statistic": BAD_WORDS,
    "side": BAD_WORDS,
    "direction": BAD_WORDS,
    "advantage_weighted": [x for x in BAD_WORDS if not isinstance(x, bool)],
    **{(name, "delta"): NO_NUMBER for name in ONE_DELTA},
}


def options_of(name: str) -> list[str]:
    return [field.name for field in fields(registry.get(name).config_type)]


BAD = {name: {o: BAD_VALUES.get((name, o), BAD_VALUES.get(o, [])) for o in options_of(name)} for name in SHIPPED}
CASES = [(method, field) for method, options in BAD.items() for field in options]


@pytest.mark.parametrize(("method", "field"), CASES)
def test_a_bad_value_is_refused(method: str, field: str) -> None:
    for value in BAD[method][field]:
        with pytest.raises(MethodConfigError) as error:
            registry.get(method).configure({field: value})
        message = str(error.value)
        assert message.startswith(f"method {method}: {field} = ") and "allowed is" in message, value


def test_every_option_of_every_method_is_tried() -> None:
    untried = [
        f"{method}.{option}" for method, options in BAD.items() for option, values in options.items() if not values
    ]
    assert not untried, "BAD_VALUES lacks them"


@pytest.mark.parametrize("method", sorted(BAD))
def test_an_unknown_option_lists_the_known_ones(method: str) -> None:
    known = ", ".join(sorted(BAD[method])) or "none"
    want = f"method {method}: unknown option 'detla'; its options are: {known}"
    if "delta" in BAD[method]:
        want += "; did you mean 'delta'?"
    with pytest.raises(MethodConfigError, match=f"^{re.escape(want)}$"):
        registry.get(method).configure({"detla": 0.15})


def test_the_papers_defaults() -> None:
    """Widths 0.2/.28 and C = 5, delta 0.15 [S] for the masks, and the released 12.5 without a cap for DRPO."""
    mask = {"delta": 0.15, "ratio_cap": 5.0, "support": "added"}
    want = {
        "drpo": {"delta": 12.5, "ratio_cap": None},
        "pg_is": {"ratio_cap": None},
        "ppo_clip_higher": {"eps_low": 0.2, "eps_high": 0.28, "dual_clip": None, "ratio_cap": 5.0},
        "dppo_topk_kl": mask,
        "predictive_aggregated": mask,
        "predictive_uniform": mask,
        "dppo_topk_tv": {**mask, "delta": 0.2},
        "dppo_binary_tv": {"delta": 0.2, "ratio_cap": 5.0},
        "dppo_binary_kl": {"delta": 0.05, "ratio_cap": 5.0},
        "predictive": {**mask, "measure": "forward_kl", "tail": "collision", "divergence": None},
        "predictive_certified": {**mask, "measure": "forward_kl", "fallback": "keep", "precision": "float32"},
        "predictive_finite_step": {**mask, "step": 0.1, "tail": "uniform"},
        "predictive_random": {**mask, "reference": "aggregated"},
    }
    assert {name: vars(registry.get(name).configure()) for name in want} == want


def test_good_values_arrive() -> None:
    """Lists, as YAML gives them, become pairs; integers are numbers; a cap may be switched off."""
    config = registry.get("dppo_topk_kl").configure({"delta": [0.1, 2], "ratio_cap": None})
    assert (config.delta, config.ratio_cap) == ((0.1, 2), None)
    assert registry.get("pg_is").configure({"ratio_cap": 1}).ratio_cap == 1
    assert registry.get("ppo_clip_higher").configure({"eps_low": 1}).eps_low == 1
    assert sides(0.15) == (0.15, 0.15) and sides((0.1, 0.2)) == (0.1, 0.2)


@pytest.mark.parametrize("method", sorted(BAD))
def test_options_cannot_change_afterwards(method: str) -> None:
    config = registry.get(method).configure()
    for option in BAD[method]:
        with pytest.raises(FrozenInstanceError):
            setattr(config, option, 3.0)


@pytest.mark.parametrize("method", ["predictive", "predictive_finite_step"])
def test_a_full_view_has_no_support_to_choose(method: str) -> None:
    """And a measure without a certificate, or a binary measure as a direction, is no choice at all."""
    with pytest.raises(MethodConfigError, match=f"method {method}: support = 'replaced': allowed is 'added'"):
        registry.get(method).configure({"tail": "full", "support": "replaced"})
    with pytest.raises(MethodConfigError, match="measure = 'reverse_kl': allowed is one of forward_kl, tv"):
        registry.get("predictive_certified").configure({"measure": "reverse_kl"})
    with pytest.raises(MethodConfigError, match="measure = 'binary_tv'"):
        registry.get("predictive").configure({"measure": "binary_tv"})


@pytest.mark.parametrize(
    ("method", "options", "needs"),
    [
        ("predictive", {"tail": "uniform"}, Needs.TOP_K),
        ("predictive", {"tail": "collision"}, Needs.TOP_K | Needs.SUM_PI_SQUARED),
        ("predictive", {"tail": "full", "divergence": "binary_kl"}, Needs.FULL),
        ("predictive_finite_step", {}, Needs.TOP_K),
        ("predictive_finite_step", {"tail": "collision"}, Needs.TOP_K | Needs.SUM_PI_SQUARED),
        ("predictive_finite_step", {"tail": "full"}, Needs.FULL),
        ("predictive_random", {"reference": "ratio"}, Needs.TOP_K | Needs.RANDOM | Needs.MINI_BATCH),
        (
            "predictive_random",
            {"reference": "collision"},
            Needs.TOP_K | Needs.RANDOM | Needs.MINI_BATCH | Needs.SUM_PI_SQUARED,
        ),
    ],
)
def test_needs_follow_the_options(method: str, options: dict[str, Any], needs: Needs) -> None:
    assert registry.get(method).requires(registry.get(method).configure(options)) == needs


def test_a_method_without_options_says_so() -> None:
    with pytest.raises(MethodConfigError, match="method plain: unknown option 'delta'; its options are: none$"):
        MethodConfig.build("plain", {"delta": 1})


@pytest.mark.parametrize("value", [10**400, -(10**400), 1e39, 1e-50])
def test_a_size_that_float32_cannot_use_is_refused(value: Any) -> None:
    """Of every numeric option: an integer beyond every float, or a number that turns ratios into inf and NaN."""
    for method, options in BAD.items():
        for option in options:
            with pytest.raises(MethodConfigError, match=f"method {method}: {option}"):
                registry.get(method).configure({option: value})
