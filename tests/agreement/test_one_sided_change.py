"""agreement: a factor of 1 + 1e-6 on one side alone, shipped or proved, breaks the agreement; without it, it holds.

Each line of CHECKS is one shipped function and the formula it is held against, on a few rows; the other files of this
folder compare the same pairs on all cases. Not covered: changes that are no factor (those files tell measures, rules
and weights apart).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from mpmath import mp, mpf

from agreement_rows import CASES, exact, signals
from derivations import formulas
from derivations.formulas import directions, divergences, intervals, weights
from derivations.numeric import evaluate
from methods import certificate, finite_step, registry
from methods.directions import full_direction, predictive_direction
from methods.measures import BINARY_MEASURES, FORWARD_KL, MEASURES

FACTOR = 1 + 1e-6
PARTS = (directions, divergences, intervals, weights)
ROWS = CASES["one candidate"].first(3)
STEP = 0.3
Both = tuple[list[float], list[float]]


def tokens() -> registry.Signals:
    """Log-probs of the sampled tokens only, with both advantages."""
    row = signals(ROWS)
    signs = torch.tensor([[1.0, -1.0, 2.0]], dtype=torch.float64)
    return replace(row, advantages=signs)


def direction(measure: str, rule: str) -> Both:
    mu, pi = ROWS.logits_mu.softmax(-1), ROWS.logits_pi.softmax(-1)
    if rule == "full":
        ours = full_direction(MEASURES[measure], mu, pi, ROWS.sampled)
    else:
        ours = predictive_direction(signals(ROWS), MEASURES[measure], rule)[0]
    return ours.tolist(), [float(position.direction(rule, measure)) for position in exact(ROWS)]


def value(measure: str) -> Both:
    ours = MEASURES[measure].value(ROWS.logits_mu.softmax(-1), ROWS.logits_pi.softmax(-1))
    return ours.tolist(), [float(position.divergence(measure, full=True)) for position in exact(ROWS)]


def two_classes(name: str) -> Both:
    row, measure = signals(ROWS), "forward_kl" if name == "binary_kl" else name.removeprefix("binary_")
    proved = [
        formulas.divergence_binary(measure, position.mu[position.sampled], position.pi[position.sampled], "mpmath")
        for position in exact(ROWS)
    ]
    return BINARY_MEASURES[name](row.logp_mu, row.logp_pi)[0].tolist(), list(map(float, proved))


def interval() -> Both:
    row = replace(signals(ROWS), sum_pi_squared=None)
    ours = certificate.direction_interval(row, FORWARD_KL, certificate.EXACT)
    proved = []
    for position in exact(ROWS):
        least = min(position.mu[token] for token in position.candidates)
        ends = formulas.full_interval(*position.classes, position.place, len(position.tail), least, backend="mpmath")
        proved.append(list(map(float, ends)))
    lows, highs = zip(*proved, strict=True)
    return [*ours.lower[0].tolist(), *ours.upper[0].tolist()], [*lows, *highs]


def step() -> Both:
    row = signals(ROWS)
    proved = [
        formulas.finite_step_change(position.mu, position.pi, position.sampled, mpf(STEP), "mpmath")
        for position in exact(ROWS)
    ]
    ours = finite_step.predicted_change(row, torch.full_like(row.logp_pi, STEP), "full")[0]
    return ours.tolist(), list(map(float, proved))


def weight(method: str, formula: Callable[[float, float, float], float], **options: Any) -> Both:
    """g of a method that looks at the sampled token only; formula(mu, pi, A) is g / r."""
    row, found = tokens(), registry.get(method)
    columns = [table[0].tolist() for table in (row.logp_mu.exp(), row.logp_pi.exp(), row.advantages)]
    proved = [p / m * formula(m, p, a) for m, p, a in zip(*columns, strict=True)]
    return found.coefficient(row, found.configure(options))[0].tolist(), proved


CHECKS: dict[str, Callable[[], Both]] = {
    **{f"direction {name}": lambda name=name: direction(name, "full") for name in MEASURES},
    **{f"reduced direction {name}": lambda name=name: direction(name, "aggregated") for name in MEASURES},
    **{f"value {name}": lambda name=name: value(name) for name in MEASURES},
    **{f"two classes {name}": lambda name=name: two_classes(name) for name in BINARY_MEASURES},
    "interval": interval,
    "finite step": step,
    "weight drpo": lambda: weight("drpo", lambda m, p, a: a * formulas.drpo_weight(m, p, a, 0.2), delta=0.2),
    "weight spo": lambda: weight("spo", lambda m, p, a: a * formulas.spo_weight(m, p, a, 0.2), eps=0.2),
    "weight mask_drpo": lambda: weight(
        "mask_drpo", lambda m, p, a: a * formulas.mask_drpo_weight(m, p, a, 0.02), delta=0.02, radius=0.02
    ),
    "weight penalty_k3": lambda: weight(
        "penalty_k3", lambda m, p, a: formulas.penalised_slope("k3", p / m, a, 0.3 * abs(a)), coefficient=0.3
    ),
    "weight ppo_clip": lambda: weight("ppo_clip", lambda m, p, a: formulas.ppo_slope(p / m, a, 0.2)),
}


def agree(name: str) -> bool:
    """Within 1e-10 of the larger numbers; the rows are gentle, so float64 leaves much less."""
    with mp.workdps(30):
        ours, proved = CHECKS[name]()
    scale = max(map(abs, proved))
    return max(abs(x - y) for x, y in zip(ours, proved, strict=True)) <= 1e-10 * scale


def scaled(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments, **options: function(*arguments, **options) * FACTOR


def shipped_changes(name: str) -> Iterator[tuple[Any, Any, Any]]:
    """(mapping or module, key or attribute, changed function) on the torch side of a check."""
    kind, _, last = name.rpartition(" ")
    if last in MEASURES:
        measure = MEASURES[last]
        changed = replace(measure, value=scaled(measure.value), logit_gradient=scaled(measure.logit_gradient))
        yield MEASURES, last, changed
    elif last in BINARY_MEASURES:
        yield BINARY_MEASURES, last, scaled(BINARY_MEASURES[last])
    elif kind == "weight":
        method = registry.get(last)
        yield registry._METHODS, last, replace(method, function=scaled(method.function))
    elif name == "interval":
        bounds = certificate._DIRECTIONS[FORWARD_KL.name]
        yield certificate._DIRECTIONS, FORWARD_KL.name, lambda known: bounds(known).scaled(FACTOR)
    else:
        yield finite_step, "finite_change", scaled(finite_step.finite_change)


@pytest.mark.parametrize("name", CHECKS)
def test_a_change_on_either_side_alone_is_noticed(name, monkeypatch):
    assert agree(name)
    with monkeypatch.context() as patch:
        for part in PARTS:
            patch.setattr(part, "evaluate", lambda expr, *rest: evaluate(expr * mpf(FACTOR), *rest))
        assert not agree(name), "the proved formula was changed"
    with monkeypatch.context() as patch:
        for owner, key, changed in shipped_changes(name):
            (patch.setitem if isinstance(owner, dict) else patch.setattr)(owner, key, changed)
        assert not agree(name), "the shipped function was changed"
    assert agree(name)
