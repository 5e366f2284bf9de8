"""The sort task under lm-eval with canned answers: no model. Sampling itself is covered by test_score.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from eval.files import InputError
from eval.tasks import TASKS_DIR
from eval.tasks.repeats import repeated_results
from eval.tasks.sort.utils import DATA_VARIABLE, load_docs, process_results


def evaluate(answers: list[str], metadata: dict[str, Any], task: Any = "sort") -> dict[str, Any]:
    """Run lm-eval with a model whose answer to the i-th request is answers[i % len(answers)]."""
    from lm_eval import simple_evaluate
    from lm_eval.api.model import LM
    from lm_eval.tasks import TaskManager

    class Canned(LM):
        def generate_until(self, requests: list[Any]) -> list[str]:
            return [answers[number % len(answers)] for number in range(len(requests))]

        def loglikelihood(self, requests: list[Any]) -> list[Any]:
            raise NotImplementedError

        def loglikelihood_rolling(self, requests: list[Any]) -> list[Any]:
            raise NotImplementedError

    manager = TaskManager(include_path=TASKS_DIR, include_defaults=False, metadata=metadata)
    results: dict[str, Any] = simple_evaluate(
        model=Canned(), tasks=[task], task_manager=manager, bootstrap_iters=0, log_samples=True
    )
    return results


def test_all_sixteen_are_scored(parquet: Path) -> None:
    """Wrong 9 times, right 7 times, all wrong ones different: avg 7/16, pass@4 1 - C(9,4)/C(16,4), maj@16 1."""
    answers = [f"3 {number}" for number in range(9)] + [" 3 "] * 7
    results = evaluate(answers, {"data": str(parquet), "problems": 5})
    scores, samples = results["results"]["sort"], results["samples"]["sort"]
    assert scores["avg@16,all"] == pytest.approx(7 / 16)
    assert scores["pass@1,all"] == pytest.approx(7 / 16)
    assert scores["pass@4,all"] == pytest.approx(1 - 126 / 1820)
    assert scores["pass@16,all"] == 1.0
    assert scores["maj@16,all"] == 1.0
    assert len(samples) == 5
    assert {len(sample["filtered_resps"][0]) for sample in samples} == {16}
    assert samples[0]["outcomes"] == [0] * 9 + [1] * 7
    assert [sample["doc"]["problem"] for sample in samples] == [100, 101, 102, 103, 104]


def test_tie_is_no_majority(parquet: Path) -> None:
    """Eight right, then eight times the same wrong answer: maj@16 is 0 although the right one came first."""
    results = evaluate(["3"] * 8 + ["4"] * 8, {"data": str(parquet), "problems": 2})["results"]["sort"]
    assert results["maj@16,all"] == 0.0 and results["avg@16,all"] == 0.5


def test_data_path_from_the_environment(parquet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without metadata the environment variable names the file; all its rows are used."""
    monkeypatch.setenv(DATA_VARIABLE, str(parquet))
    assert len(load_docs()["test"]) == 64
    monkeypatch.delenv(DATA_VARIABLE)
    with pytest.raises(InputError, match=DATA_VARIABLE):
        load_docs()


def test_empty_answer_never_counts() -> None:
    """Blank responses are no answers: they do not vote and are wrong. Blanks between numbers do not matter."""
    result = process_results({"answer": "1 2"}, [["", "  ", "12", "\n1  2 "]])
    assert result["outcomes"] == [0, 0, 0, 1]
    assert result["answers"] == [None, None, "12", "1 2"]
    assert result["maj@4"] == 0


def test_inconsistent_grader_is_refused() -> None:
    """One answer cannot be right and wrong for the same problem; the majority's outcome would depend on order."""
    with pytest.raises(ValueError, match="'7' both right and wrong"):
        repeated_results([1, 0], ["7", "7"])


def _row(**change: Any) -> dict[str, Any]:
    row = {
        "prompt": [{"role": "user", "content": "2 1"}],
        "reward_model": {"style": "rule", "ground_truth": "1 2"},
        "extra_info": {"split": "test", "index": 0},
    }
    return row | change


@pytest.mark.parametrize(
    ("rows", "problems", "message"),
    [
        ([_row()], 2, "has 1 rows, 2 problems were asked for"),
        ([_row(), _row()], None, "extra_info.index is not unique"),
        ([{"prompt": []}], None, r"lacks column\(s\) \['reward_model', 'extra_info'\]"),
        (
            [_row(prompt=[{"role": "system", "content": "x"}, {"role": "user", "content": "y"}])],
            None,
            "one user message",
        ),
        ([_row(extra_info={"split": "test", "index": None})], None, "row 0: extra_info.index"),
    ],
)
def test_bad_data(rows: list[dict[str, Any]], problems: int | None, message: str, tmp_path: Path) -> None:
    """Each refusal names the file and the field."""
    path = tmp_path / "bad.parquet"
    pd.DataFrame(rows).to_parquet(path)
    with pytest.raises(InputError, match=r"bad\.parquet.*" + message):
        load_docs(str(path), problems)
