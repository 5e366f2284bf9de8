"""Definition tests of eval.metrics on numbers worked by hand. They do not cover who calls them with which samples."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from eval.metrics import (
    avg_at_k,
    candidates,
    group_mean,
    maj_at_k,
    majority,
    pass_at_k,
    pass_at_k_per_problem,
    standard_error,
    std_between_runs,
    std_per_problem,
    stderr_avg_at_k,
)
from eval.tasks.repeats import repeated_results


def test_pass_at_k_closed_form() -> None:
    """One right of four is certain to be among four; two of eight, four drawn: 1 - C(6,4)/C(8,4) = 1 - 15/70."""
    assert pass_at_k(4, 1, 4) == 1.0
    assert pass_at_k(8, 2, 4) == pytest.approx(1 - 15 / 70)
    assert [pass_at_k(16, right, 1) for right in range(17)] == pytest.approx([right / 16 for right in range(17)])
    assert pass_at_k(16, 0, 16) == 0.0


def test_pass_at_k_counts_subsets() -> None:
    """For every n, c and k up to 6 it is the share of k-subsets that hold a right sample."""
    for n in range(1, 7):
        for c, k in itertools.product(range(n + 1), range(1, n + 1)):
            subsets = list(itertools.combinations([1] * c + [0] * (n - c), k))
            assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


@pytest.mark.parametrize(("n", "c", "k"), [(4, 5, 1), (4, -1, 1), (4, 1, 5), (4, 1, 0)])
def test_pass_at_k_refuses_nonsense(n: int, c: int, k: int) -> None:
    """More right ones than samples, or a k that cannot be drawn."""
    with pytest.raises(ValueError, match=f"n={n}, c={c}, k={k}"):
        pass_at_k(n, c, k)


def test_average_uses_every_repeat() -> None:
    """Wrong, right, right: avg@3 is 2/3 and pass@3 is 1, not the 0 of the first response."""
    assert avg_at_k([[0, 1, 1]]) == pytest.approx(2 / 3)
    assert pass_at_k_per_problem([[0, 1, 1]], 3) == [1.0]


def test_majority_knows_no_position() -> None:
    """A tie is no majority, in whatever order; samples without an answer do not vote."""
    assert majority(["7", "1", "2", "3"]) is None
    assert majority(["7", "7", "1", "1"]) is None
    assert majority(["1", "7", "7"]) == "7"
    assert majority([None, None, None, "7"]) == "7"
    assert majority([None, None]) is None
    assert majority([]) is None


def test_majority_score() -> None:
    """Four distinct answers, the right one first: wrong. Two of three right: right."""
    assert maj_at_k([["7", "1", "2", "3"]], ["7"]) == 0.0
    assert maj_at_k([["7", "1", "7"], ["5", "5", "7"]], ["7", "7"]) == 0.5
    with pytest.raises(ValueError, match="truths"):
        maj_at_k([["7"]], [])


def test_standard_error_is_never_zero_by_accident() -> None:
    """14 of 307 right: 0.0456026 +- 0.0119261."""
    outcomes = [[1]] * 14 + [[0]] * 293
    assert avg_at_k(outcomes) == pytest.approx(0.0456026, rel=1e-5)
    assert stderr_avg_at_k(outcomes) == pytest.approx(0.0119261, rel=1e-5)
    assert math.isnan(standard_error([0.5]))


def test_standard_error_clusters_by_problem() -> None:
    """Repeats that always agree carry the information of one: the error is that of the problems alone."""
    one = [[1], [0], [0], [1], [1]]
    assert stderr_avg_at_k(np.repeat(one, 16, axis=1)) == pytest.approx(stderr_avg_at_k(one))


def test_two_standard_deviations_have_two_names() -> None:
    """Two problems, two runs [[1, 0], [0, 1]]: nothing between runs, 0.5 per problem."""
    outcomes = [[1, 0], [0, 1]]
    assert std_between_runs(outcomes) == 0.0
    assert std_per_problem(outcomes) == 0.5


def test_group_mean_and_its_own_error() -> None:
    """Benchmarks of 100 and 10000 items, both at 0.5: unweighted error 0.02525, pooled 0.0049757."""
    errors = [standard_error([1, 0] * (size // 2)) for size in (100, 10_000)]
    unweighted = group_mean([0.5, 0.5], errors, [100, 10_000], weight_by_size=False)
    pooled = group_mean([0.5, 0.5], errors, [100, 10_000], weight_by_size=True)
    assert unweighted == (0.5, pytest.approx(0.02525, rel=1e-3))
    assert pooled == (0.5, pytest.approx(0.0049757, rel=1e-4))
    assert group_mean([0.0, 1.0], errors, [100, 300], weight_by_size=True)[0] == pytest.approx(0.75)


@pytest.mark.parametrize("outcomes", [[], [[]], [0, 1], [[0, 2]], [[0.5, 1]]])
def test_outcomes_are_checked(outcomes: list[object]) -> None:
    """Empty, one-dimensional or not 0/1."""
    with pytest.raises(ValueError, match="outcomes must be"):
        avg_at_k(outcomes)


def test_right_answers_are_one_candidate() -> None:
    """Three spellings of the truth outvote a wrong answer given twice; two against two is a tie; None never votes."""
    answers = ["0.5", "1/2", "\\frac{1}{2}", "3", "3"]
    assert candidates([1, 1, 1, 0, 0], answers) == ["0.5", "0.5", "0.5", "3", "3"]
    assert repeated_results([1, 1, 1, 0, 0], answers)["maj@5"] == 1
    assert repeated_results([1, 1, 0, 0], [answers[0], answers[1], "3", "3"])["maj@4"] == 0
    assert repeated_results([1, 1, 0, 0], [None, "1/2", "3", "4"])["maj@4"] == 0
    for order in itertools.permutations(range(5)):
        turned = repeated_results([[1, 1, 1, 0, 0][i] for i in order], [answers[i] for i in order])
        assert turned["maj@5"] == 1
