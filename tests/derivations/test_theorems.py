"""Every theorem proves and certifies, and its proof hangs on the divergence or objective it speaks of.

Not covered: that the source and the mark of a theorem are right; a reader has to look that up.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from sympy import Derivative, Indexed, Symbol, exp

import derivations.theorems as theorems
from derivations import measures, objectives, setting, theorem
from derivations.proof import ProofError
from derivations.setting import FULL, n
from derivations.sums import total

NAMES = theorem.names()
SEARCHED = {"counterexamples"}  # its proof starts from a search with formulas that other theorems derive


@pytest.mark.parametrize("name", NAMES)
def test_theorem_is_proved(name):
    steps = theorem.get(name).prove()
    if name not in SEARCHED:
        assert any(step.left.has(Derivative) for step in steps), "a proof starts from a derivative"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", [0, 1])
def test_theorem_is_certified(name, seed):
    certificate = theorem.get(name).certify(dps=50, seed=seed)
    assert certificate.cases >= 40
    assert certificate.worst <= certificate.tolerance < 1e-24


@pytest.mark.parametrize("name", NAMES)
def test_every_symbol_is_declared_real(name):
    """An undeclared symbol gives re() and im() terms in derivatives of |.|."""
    for claim in theorem.get(name).claims:
        labels = {entry.base.label for entry in claim.right.atoms(Indexed)}
        assert all(symbol.is_real for symbol in claim.right.free_symbols - labels if isinstance(symbol, Symbol))
        assert all(entry.is_real for entry in claim.right.atoms(Indexed))


def double_kl(mu_i, pi_i):
    return 2 * GENUINE_KL(mu_i, pi_i)


def reverse_kl(mu_i, pi_i):
    return GENUINE_KL(pi_i, mu_i)


def drpo_without_half(ratio, advantage, mu_k, radius):
    return GENUINE_DRPO(ratio, advantage, mu_k, radius / 2)


def spo(ratio, advantage, mu_k, radius):
    return GENUINE_DRPO(ratio, advantage, 1, radius)


def hotter_softmax(logits):
    normaliser = total(exp(2 * logits(setting.q)), setting.q, FULL)
    return lambda token: exp(2 * logits(token)) / normaliser


def doubled(term):
    return lambda mu_i, pi_i: 2 * term(mu_i, pi_i)


GENUINE_KL, GENUINE_DRPO = measures.forward_kl, objectives.drpo
KL_THEOREMS = [
    "predictive_direction", "local_global_split", "disagreement", "agreement_certificate", "finite_step",
    "reduced_tail", "aggregated_tail", "uniform_tail", "tail_gap", "finite_step_topk", "full_interval",
]  # fmt: skip
MEASURE_THEOREMS = ["measure_slopes", "binary_measures", "reduced_bounds", "reduced_measures"]
DRPO_THEOREMS = ["drpo_coefficient", "drpo_bounds", "drpo_stationary", "expected_regulariser", "mask_drpo"]


@pytest.mark.parametrize("other", [double_kl, reverse_kl])
@pytest.mark.parametrize("name", [*KL_THEOREMS, "binary_measures", "reduced_bounds", "reduced_measures"])
def test_another_divergence_breaks_the_proof(name, other, monkeypatch):
    monkeypatch.setattr(measures, "forward_kl", other)
    with pytest.raises(ProofError, match=name):
        theorem.get(name).prove()


@pytest.mark.parametrize(
    ("name", "measure"),
    sorted(
        {(name, claim.label.split(",")[0]) for name in MEASURE_THEOREMS for claim in theorem.get(name).claims}
        - {("binary_measures", "motion")}
    ),
)
def test_each_measure_is_the_one_that_is_differentiated(name, measure, monkeypatch):
    monkeypatch.setattr(measures, measure, doubled(measures.term(measure)))
    with pytest.raises(ProofError, match=measure):
        theorem.get(name).prove()


@pytest.mark.parametrize("penalty", objectives.PENALTIES)
def test_another_penalty_breaks_the_proof(penalty, monkeypatch):
    genuine = getattr(objectives, penalty)
    monkeypatch.setattr(objectives, penalty, lambda ratio: 2 * genuine(ratio))
    with pytest.raises(ProofError, match=penalty):
        theorem.get("penalties").prove()


@pytest.mark.parametrize(("name", "objective"), [("spo_weight", "spo"), ("ppo_mask", "clipped")])
def test_another_radius_breaks_the_proof(name, objective, monkeypatch):
    genuine = getattr(objectives, objective)
    monkeypatch.setattr(objectives, objective, lambda ratio, advantage, radius: genuine(ratio, advantage, radius / 2))
    with pytest.raises(ProofError, match=name):
        theorem.get(name).prove()


@pytest.mark.parametrize("other", [drpo_without_half, spo])
@pytest.mark.parametrize("name", DRPO_THEOREMS)
def test_another_objective_breaks_the_proof(name, other, monkeypatch):
    monkeypatch.setattr(objectives, "drpo", other)
    with pytest.raises(ProofError, match=name):
        theorem.get(name).prove()


def test_another_softmax_breaks_the_step(monkeypatch):
    monkeypatch.setattr(setting, "softmax", hotter_softmax)
    with pytest.raises(ProofError, match="softmax_step"):
        theorem.get("softmax_step").prove()


def test_claims_hold_for_a_symbolic_vocabulary():
    """No theorem about the vocabulary fixes its size."""
    named = (
        "softmax_step",
        "any_divergence",
        "centring",
        "measure_slopes",
        "disagreement",
        "finite_step",
        "tail_collision",
    )
    for name in (*named, "predictive_direction", "local_global_split", "uniform_tail", "tail_gap"):
        assert any(n in claim.right.free_symbols for claim in theorem.get(name).claims), name


def test_every_file_is_listed_and_registers_its_name():
    files = {path.stem for path in Path(theorems.__file__).parent.glob("*.py")} - {"__init__"}
    assert files == set(theorems.IN_READING_ORDER) == set(NAMES)
    assert theorems.IN_READING_ORDER == NAMES


def test_unknown_names_are_answered_with_the_known_ones():
    with pytest.raises(theorem.UnknownTheoremError, match="unknown theorem 'eq99'.*predictive_direction"):
        theorem.get("eq99")
    with pytest.raises(KeyError, match="no claim 'x'; known: direction"):
        theorem.get("predictive_direction").claim("x")


def test_malformed_theorems_are_refused():
    good = theorem.get("predictive_direction")
    with pytest.raises(ValueError, match="mark is 'Z', allowed are F, S, I, N"):
        dataclasses.replace(good, mark="Z")
    with pytest.raises(ValueError, match="distinct labels"):
        dataclasses.replace(good, claims=good.claims * 2)
    with pytest.raises(ValueError, match="registered twice"):
        theorem.register(good)
    with pytest.raises(ProofError, match="no steps"):
        dataclasses.replace(good, prover=lambda claims: []).prove()
    with pytest.raises(ValueError, match="dps is 5, allowed are 15"):
        good.certify(dps=5)
