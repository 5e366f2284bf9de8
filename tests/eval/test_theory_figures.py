"""The figures of the theory: bytes, captions, and that what they show is what they say. Looks take an eye."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from eval.figures import command, disagreement, finite_step, rows, tail_rules, weights
from methods.finite_step import finite_change
from methods.measures import FORWARD_KL

FIGURES = {"disagreement": disagreement, "weights": weights, "finite_step": finite_step, "tail_rules": tail_rules}


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Every figure, in small; drawn twice, with the same bytes."""
    folder = tmp_path_factory.mktemp("figures")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finite_step, "ROWS", 60)
        patch.setattr(tail_rules, "ROWS", 200)
        patch.setattr(tail_rules, "VOCAB", 120)
        patch.setattr(weights, "POINTS", 101)
        small = disagreement.regions
        patch.setattr(disagreement, "regions", lambda term: small(term, 31))
        texts = {}
        for name, module in FIGURES.items():
            for copy in ("a", "b") if name == "finite_step" else ("a",):
                assert module.main(["--output", str(folder / f"{name}.{copy}.svg")]) == 0
            texts[name] = (folder / f"{name}.a.svg").read_text()
        assert texts["finite_step"] == (folder / "finite_step.b.svg").read_text()
    return texts


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("disagreement", ["arXiv 2607.10848, Eqs. 7-9 [S]", "Global term -b"]),
        ("weights", ["Table 1", "[F] exact from the paper"]),
        ("finite_step", ["60 synthetic rows [N], seed 0: 200 tokens", "never wrong"]),
        ("tail_rules", ["200 synthetic rows [N], seed 0: 120 tokens", "is a value of c2"]),
    ],
)
def test_caption_has_source_marks_and_no_date(name: str, words: list[str], drawn: dict[str, str]) -> None:
    description = re.findall(r"<dc:description>(.*?)</dc:description>", drawn[name], re.S)[0]
    for word in words:
        assert word in description, description
    assert "<dc:date>" not in drawn[name] and not re.search(r"20\d\d-\d\d-\d\d", drawn[name])
    assert "<image" not in drawn[name], "the report inlines plain drawings only"


@pytest.mark.parametrize("term", disagreement.GLOBAL_TERMS)
def test_every_point_is_a_pair_of_policies_with_that_global_term(term: float) -> None:
    axis = np.linspace(0.02, 0.98, 25)
    mu_k, pi_k = np.meshgrid(axis, axis)
    mu, pi, possible = disagreement.policies(mu_k, pi_k, -term)
    mu, pi = mu[possible], pi[possible]
    assert len(mu) > 100 and (mu >= 0).all() and (pi >= -1e-15).all()
    ones = torch.ones(len(mu), dtype=torch.float64)
    torch.testing.assert_close(mu.sum(-1), ones)
    torch.testing.assert_close(pi.sum(-1), ones)
    torch.testing.assert_close((pi * (mu - pi)).sum(-1), term * ones, rtol=0, atol=1e-12)


def test_points_left_out_have_no_such_policies() -> None:
    """Random policies over few tokens never reach a global term where the figure says none does."""
    random = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(2, 4000, 6, generator=random, dtype=torch.float64)
    mu, pi = logits.softmax(-1)
    for row in range(0, 4000, 100):
        b = float((pi[row] * (pi[row] - mu[row])).sum())
        _, _, possible = disagreement.rest_masses(mu[row, :1].numpy(), pi[row, :1].numpy(), b)
        assert possible.all()


@pytest.mark.parametrize("term", disagreement.GLOBAL_TERMS)
def test_regions_lie_between_the_lines(term: float) -> None:
    axis, found = disagreement.regions(term * -1, 41)
    mu_k, pi_k = np.meshgrid(axis, axis)
    between = (pi_k - mu_k) * np.sign(-term) > 1e-9
    between &= (pi_k - mu_k + term) * np.sign(-term) < -1e-9
    disagree = (found == disagreement.FALSE_ALARM) | (found == disagreement.MISSED)
    assert disagree.any() and (between | ~disagree | (np.abs(pi_k - mu_k) < 1e-9)).all()
    assert (disagree | ~between | (found == disagreement.EMPTY) | (np.abs(pi_k - mu_k + term) < 1e-9)).all()


def test_weights_are_those_of_table_1() -> None:
    """mu = 0.1, A > 0 and r = 2: PPO 0, SPO 1 - 1/.2 = -4, DPPO 1, DRPO 1 - 0.1/.15 = 1/3; and r = 0.5, inward."""
    row = weights.signals(0.1, 1.0)
    for ratio, expected in ((2.0, [0, -4, 1, 1 / 3]), (0.5, [1, 3.5, 1, 4 / 3])):
        place = int((row.ratio()[0] - ratio).abs().argmin())
        here = [float(weights.weight(curve, row)[0, place]) for curve in weights.curves()]
        assert here == pytest.approx(expected, abs=5e-3)


def test_steps_are_exact_and_never_below_the_prediction() -> None:
    made = rows.synthetic_rows(40, 50, 3)
    for size in (0.01, 1.0):
        predicted, exact = finite_step.changes(made, size)
        assert (exact >= predicted - 1e-12).all()
        signs = 1.0 - 2.0 * (torch.arange(40, dtype=torch.float64) % 2)
        move = -made.pi.scatter_add(-1, made.sampled[:, None], -torch.ones(40, 1, dtype=torch.float64))
        torch.testing.assert_close(exact, finite_change(made.mu, made.pi, move, size * signs), rtol=0, atol=1e-12)
        assert finite_step.right_signs(made, predicted, exact)[2] == 0, "a predicted increase was wrong"


def test_all_tail_rules_are_exact_without_a_tail() -> None:
    made = rows.synthetic_rows(60, 40, 0)
    few, _ = tail_rules.errors(made, 2)
    every, _ = tail_rules.errors(made, 40)
    assert all(wrong == 0 and error < 1e-12 for wrong, error in every.values())
    assert few["aggregated"][1] > few["collision"][1] > 1e-6


def test_rows_are_what_the_caption_says() -> None:
    """The sampled id follows mu; a seed gives the same rows."""
    made, again = (rows.synthetic_rows(4000, 12, seed) for seed in (1, 1))
    assert (made.mu == again.mu).all() and (made.sampled == again.sampled).all()
    drawn_first = (made.sampled == 0).double().mean()
    assert float(drawn_first) == pytest.approx(float(made.mu[:, 0].mean()), abs=0.03)
    assert (FORWARD_KL.value(made.mu, made.pi) > 0).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [(["--seed", "-1"], "--seed is -1, allowed are 0 and above"), ([], "required: --output")],
)
def test_bad_options(options: list[str], message: str, tmp_path: Path, capsys: Any) -> None:
    given = [*options, *(["--output", str(tmp_path / "x.svg")] if options else [])]
    with pytest.raises(SystemExit) as stopped:
        command.run("weights", "", weights.draw, given)
    assert stopped.value.code == 2 and message in capsys.readouterr().err


def test_other_formats_are_refused(tmp_path: Path, capsys: Any) -> None:
    assert weights.main(["--output", str(tmp_path / "x.pdf")]) == 2
    assert "must end in .svg" in capsys.readouterr().err
