"""The list of claims, and the command from tables to verdicts. Not covered: whether a sentence is the paper's."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eval.claims.__main__ import main, rows_by_setting, verdicts_of
from eval.claims.claims import parse, read_claims
from eval.claims.measure import Results, read_results
from eval.claims.page import COLUMNS
from eval.files import InputError, read_csv, write_csv
from eval.tables import TIDY

LIST = Path(__file__).parents[3] / "eval" / "claims" / "claims.yaml"
ROW: dict[str, Any] = {
    "id": "X", "paper": "A", "figure": "Figure 1", "sentence": "a trains better than b.", "quantity": "mean reward",
    "mark": "S", "kind": "difference", "margin": 0.005,
    "estimand": {"outcome": "reward", "settings": ["S"], "plus": ["a"], "minus": ["b"]},
}  # fmt: skip


def test_the_list_covers_the_three_papers() -> None:
    claims = read_claims(LIST)
    of_papers = [claim for claim in claims if not claim.own]
    assert len(of_papers) >= 30
    assert {claim.paper for claim in of_papers} == {"A", "B", "C"}
    assert any(claim.own for claim in claims)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("mark", "X", "mark = 'X': allowed is F, S, I, N"),
        ("kind", "better", "kind = 'better': allowed is difference"),
        ("margin", -1, "margin = -1.0: allowed is a number above 0"),
        ("margin", None, "margin = nan: allowed"),
        ("margin", True, "margin = True: allowed is a finite number"),
        ("paper_value", 0.001, "margin = 0.005: allowed is at most half of"),
        ("paper_value", float("inf"), "paper_value = inf"),
        ("primary", "yes", "primary = 'yes': allowed is true or false"),
        ("not_testable", "no data", "allowed is a reason, or else an estimand"),
        ("sentence", "", "sentence = '': allowed is a text"),
        ("marign", 1, "marign: no such field"),
        ("estimand.outcome", "loss", "outcome = 'loss': allowed is reward"),
        ("estimand.outcome", "collapse", "outcome = 'collapse': allowed is one of ('collapse', 'dip') with kind"),
        ("estimand.settings", [], "settings = []: allowed is a list of different names"),
        ("estimand.plus", ["a", "a"], "plus = ['a', 'a']: allowed"),
        ("estimand.minus", [], "minus = []: allowed is a variant"),
        ("estimand.metric", "loss", "metric = 'loss': allowed"),
        ("estimand.where", "S", "where: no such field"),
    ],
)
def test_a_wrong_field_is_refused_in_one_line(field: str, value: Any, said: str) -> None:
    row = copy.deepcopy(ROW)
    target, _, name = field.rpartition(".")
    (row[target] if target else row)[name] = value
    with pytest.raises(InputError) as refused:
        parse(row, "claims.yaml, claim 1")
    message = str(refused.value)
    assert message.startswith("claims.yaml, claim 1 (X)") and said in message and "\n" not in message
    parse(ROW, "unchanged")


@pytest.mark.parametrize(
    ("text", "said"),
    [("a: [", "not YAML"), ("claims: []", "at least one claim"), ("claims: [3]", "allowed is a mapping")],
)
def test_a_file_that_is_no_list_of_claims_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "claims.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=said):
        read_claims(path)


def test_two_claims_of_one_id_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "claims.yaml"
    path.write_text(f"claims: [{ROW}, {ROW}]", encoding="utf-8")
    with pytest.raises(InputError, match="claim 2: id = 'X'"):
        read_claims(path)


def curves(folder: Path, shift: float, seeds: int = 6, settings: tuple[str, ...] = ("S", "T")) -> Path:
    """Twelve versions of a and b; a is better by `shift`, but for a scatter of 0.002 a seed."""
    rng = np.random.default_rng(0)
    rows = []
    for setting in settings:
        for seed in range(seeds):
            for variant, extra in (("a", shift + rng.normal(0, 0.002)), ("b", 0.0)):
                for step in range(1, 14):
                    data = {"reward/mean": 0.4 + extra, "weights/sampled_version": step - 1}
                    for metric, value in data.items():
                        rows.append(dict(zip(TIDY, (setting, variant, seed, step, metric, value, None), strict=True)))
    write_csv(folder / "tables" / "curves.csv", TIDY, rows)
    return folder


def test_the_command_writes_the_tables_and_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The real list over a tier that has none of its settings, and one claim that it can test; bytes repeat."""
    results = curves(tmp_path / "toy", 0.02)
    path = tmp_path / "claims.yaml"
    testable = copy.deepcopy(ROW)
    testable["estimand"]["settings"] = ["S", "T"]
    path.write_text(LIST.read_text(encoding="utf-8") + f"  - {testable}\n", encoding="utf-8")
    for output in ("one", "two"):
        command = ["--results", str(results), "--claims", str(path), "--output", str(tmp_path / output)]
        assert main(command) == 0
    names = ("verdicts.csv", "verdicts_by_setting.csv", "verdicts.html")
    assert all((tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes() for name in names)
    rows = read_csv(tmp_path / "one" / "verdicts.csv", "verdicts", COLUMNS)
    assert {row["verdict"] for row in rows[:-1]} == {"not testable"} and all(row["note"] for row in rows[:-1])
    assert (rows[-1]["verdict"], rows[-1]["n"], rows[-1]["interval_kind"]) == ("replicated", "12", "t, pooled variance")
    page = (tmp_path / "one" / "verdicts.html").read_text(encoding="utf-8")
    assert page.count("<table>") == 2 and "a trains better than b." in page
    empty = ["--results", str(tmp_path / "none"), "--claims", str(path), "--output", str(tmp_path / "three")]
    assert main(empty) == 1
    assert "neither tables/curves.csv nor" in capsys.readouterr().err


def test_a_row_elsewhere_moves_no_number_of_a_claim(tmp_path: Path) -> None:
    """Another setting: the same verdict. A partner that lacks a seed leaves that seed out, and the note says so."""
    claim = parse(ROW, "claim")
    alone = read_results(curves(tmp_path / "one", 0.02, settings=("S",)))
    beside = read_results(curves(tmp_path / "two", 0.02))
    assert verdicts_of([claim], alone)[0] == verdicts_of([claim], beside)[0]
    records = {key: record for key, record in alone.records.items() if (key.variant, key.seed) != ("b", 5)}
    found = verdicts_of([claim], Results(records))[0]
    assert found.estimate.n == 5 and "1 seed(s) of S without a partner" in found.note
    assert rows_by_setting([claim], alone) == []


def test_tokens_take_six_seeds_and_one_training(tmp_path: Path) -> None:
    """Gaps of five and six seeds; a seed without a kept token is left out; two trainings of a seed are refused."""
    row = copy.deepcopy(ROW) | {"paper_value": -0.027, "margin": 0.0135}
    row["estimand"] = {"outcome": "gap", "settings": ["P"], "plus": ["aggregated"]}
    claim = parse(row, "claim")
    gaps = [-0.02, -0.03, -0.025, -0.03, -0.02, -0.027]
    rows = [{"setting": "P", "seed": str(i), "criterion": "aggregated", "gap": str(gap)} for i, gap in enumerate(gaps)]
    assert verdicts_of([claim], Results(tokens=rows))[0].word == "replicated"
    assert verdicts_of([claim], Results(tokens=rows[:5]))[0].word == "not testable"
    assert verdicts_of([claim], Results(tokens=[*rows[:5], rows[5] | {"gap": "nan"}]))[0].word == "not testable"
    assert "several trainings" in verdicts_of([claim], Results(tokens=rows * 2))[0].note
