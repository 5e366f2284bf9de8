"""What a task with repeats hands back to lm-eval and to `eval.score`.

A task that `eval.score` can run, our own or a user's, has
* a `filter_list` with one `take_first_k` pipeline (lm-eval's default keeps the first response only), and
* a `process_results` that returns `repeated_results(outcomes, answers)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eval.files import InputError
from eval.metrics import candidates, majority, pass_at_k

PASS_AT = (1, 4, 16)


def repeated_results(outcomes: Sequence[int], answers: Sequence[str | None]) -> dict[str, Any]:
    """lm-eval metrics of one problem, and the two lists from which all of them can be recomputed.

    outcomes: R values 0/1; answers: R extracted answers, None where a response holds none. Equal answers must have
    equal outcomes, else InputError. maj@R: right answers are one candidate however they are written; wrong ones are
    told apart by their text, so a task whose wrong answers have several spellings gives them in one.
    """
    n, right = len(outcomes), sum(outcomes)
    graded: dict[str, int] = {}
    for answer, outcome in zip(answers, outcomes, strict=True):
        if answer is not None and graded.setdefault(answer, outcome) != outcome:
            raise InputError(f"the grader called {answer!r} both right and wrong for one problem")
    winner = majority(candidates(outcomes, answers))
    return {
        f"avg@{n}": right / n,
        **{f"pass@{k}": pass_at_k(n, right, k) for k in PASS_AT if k <= n},
        f"maj@{n}": 0 if winner is None else graded[winner],
        "outcomes": list(outcomes),
        "answers": list(answers),
    }


def count(items: Sequence[Any]) -> int:
    """Aggregation of `outcomes` and `answers`, which are per-problem lists: their number."""
    return len(items)
