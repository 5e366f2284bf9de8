"""Claim: the mutation run puts in the faults it names, runs the tests that can notice, and counts honestly.

Not covered: the whole run on methods/ (`make mutate`).
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from workflows.tools.mutation.__main__ import EQUIVALENT, choose, code_files, equivalents, wilson
from workflows.tools.mutation.operators import Mutant, difference, enclosing_functions, excerpt, mutants, mutate
from workflows.tools.mutation.runner import ROOT, Finder, run_in_fork

SOURCE = '''"""A module."""
from __future__ import annotations
import torch

LIMIT: float | None = 2.0

def f(x: int | None, y=True):
    """Says."""
    if x > 0 and y:
        return torch.where(x == 1, x + 1, -x).sum(-1)
    raise ValueError(f"x = {x}: allowed is {1}")

if __name__ == "__main__":
    f(3)
'''


def changes(source: str) -> list[str]:
    """The new line of each fault."""
    found = [difference(source, mutant) for mutant in mutants("m.py", source)]
    return [line[1:].strip() for text in found for line in text.splitlines() if line.startswith("+")]


def test_every_operator_and_nothing_that_is_no_fault() -> None:
    assert changes(SOURCE) == [
        "LIMIT: float | None = 4.0",
        "def f(x: int | None, y=False):",
        "if not (x > 0 and y):",
        "if x > 0 or y:",
        "if x >= 0 and y:",
        "if x > 1 and y:",
        "return torch.where(x == 1, x + 1, -x).mean(-1)",
        "return torch.where(x == 1, -x, x + 1).sum(-1)",
        "return torch.where(x != 1, x + 1, -x).sum(-1)",
        "return torch.where(x == 2, x + 1, -x).sum(-1)",
        "return torch.where(x == 1, x - 1, -x).sum(-1)",
        "return torch.where(x == 1, x + 2, -x).sum(-1)",
        "return torch.where(x == 1, x + 1, x).sum(-1)",
        "return torch.where(x == 1, x + 1, -x).sum(-2)",
        "pass",
    ]


@pytest.mark.parametrize(
    ("line", "want"),
    [
        ("a = b if c else d", ["a = d if c else b"]),
        ("a = not b", ["a = b"]),
        ("a = b.clamp(min=c)", ["a = b"]),
        ("a = torch.clamp(b)", []),
        ("a -= b", ["pass"]),
        ("check(a)", ["pass"]),
        ("a = 'word'", ["a = 'word_'"]),
        ("a = 0.0", ["a = 1.0"]),
        ("parser.add('--x', help='words')", ["pass", "parser.add('--x_', help='words')"]),
        ("Rule = Literal['none', 'full']", []),
        ("a = b & c", ["a = b | c"]),
        ("a = b.sum(-1)", ["a = b.mean(-1)", "a = b.sum(-2)"]),
        ("a = -b", ["a = b"]),
        ("zip(a, b, strict=True)", ["pass"]),
        ("@register('name', mark='F')\ndef f(): ...", []),
    ],
)
def test_faults_of_one_line(line: str, want: list[str]) -> None:
    assert changes(line) == want


def test_a_long_line_is_cut_to_what_differs() -> None:
    diff = f"-{'a' * 200}1{'b' * 200}\n+{'a' * 200}23{'b' * 200}"
    assert excerpt(diff, around=3) == "-… aaa1bbb\n+… aaa23bbb"
    assert excerpt("-a\n+b") == "-a\n+b"


def test_a_fault_is_one_change_and_every_file_of_methods_has_some() -> None:
    for path in code_files():
        source, seen = path.read_text(), set()
        plain = ast.dump(ast.parse(source))
        for mutant in mutants("m.py", source)[::25]:
            tree = mutate(source, mutant)
            compile(tree, "m.py", "exec")
            seen.add(ast.dump(tree))
            assert ast.dump(tree) != plain
        assert len(seen) == len(mutants("m.py", source)[::25])
    assert not any("backend" in path.parts for path in code_files()) and len(code_files()) > 15


def test_tests_that_call_the_function_run_fastest_first() -> None:
    """Outside functions, or where no test calls it by name, all tests run, those of the same file first."""
    assert enclosing_functions(SOURCE) == {line: (7, 11) for line in range(7, 12)}
    calls = {"slow": [["m.py", 7]], "quick": [["m.py", 7]], "other": [["n.py", 7]], "none": []}
    seconds = {"slow": 2.0, "quick": 1.0, "other": 0.1, "none": 0.2}
    inside, outside = Mutant("m.py", 0, 0, "constant", 9), Mutant("m.py", 0, 0, "constant", 5)
    assert choose(inside, SOURCE, calls, seconds) == (["quick", "slow"], True)
    assert choose(outside, SOURCE, calls, seconds) == (["quick", "slow", "other", "none"], True)
    assert choose(inside, SOURCE, {"other": []}, seconds) == (["other"], False)


def test_a_child_reports_its_status_dies_alone_and_is_stopped() -> None:
    def forever() -> int:
        while True:
            pass

    assert run_in_fork(lambda: 3, 10) == 3
    assert run_in_fork(lambda: [][1], 10) == 70  # an exception; the parent goes on
    assert run_in_fork(forever, 1) < 0


def test_only_the_named_module_is_replaced() -> None:
    finder = Finder({ROOT / "methods" / "catalogue" / "__init__.py": ast.parse("A = 1")})
    assert finder.find_spec("methods.masks") is None
    spec = finder.find_spec("methods.catalogue")
    assert spec.submodule_search_locations == [str(ROOT / "methods" / "catalogue")]
    scope: dict[str, int] = {}
    exec(spec.loader.get_code("methods.catalogue"), scope)
    assert scope["A"] == 1


@pytest.mark.parametrize(("hits", "total"), [(0, 10), (5, 10), (190, 200), (7, 7)])
def test_wilson_interval(hits: int, total: int) -> None:
    """By definition: both ends p solve |hits/total - p| = 1.96 sqrt(p (1 - p) / total)."""
    low, high = wilson(hits, total)
    assert low <= hits / total <= high and high - low < 1
    for end in (low, high):
        assert abs(hits / total - end) == pytest.approx(1.96 * (end * (1 - end) / total) ** 0.5, abs=1e-9)


def test_no_trial_tells_nothing() -> None:
    assert wilson(0, 0) == (0.0, 1.0)


def test_equivalent_faults_are_faults_of_the_present_code() -> None:
    """An entry whose code has changed would excuse nothing, or the wrong thing."""
    present = {
        (path.relative_to(ROOT).as_posix(), difference(source, mutant))
        for path in code_files()
        if f'"{path.relative_to(ROOT).as_posix()}"' in EQUIVALENT.read_text()
        for source in [path.read_text()]
        for mutant in mutants("", source)
    }
    assert equivalents() <= present


def test_a_small_run(tmp_path: Path) -> None:
    """Faults of config.py against its own tests: some die, and the count adds up."""
    command = [sys.executable, "-m", "workflows.tools.mutation", "--paths", "methods/config.py"]
    command += ["--tests", "tests/methods/test_config.py", "--sample", "8"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run([*command, "--least", "0.5"], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.startswith("8 of ") and "\nkilled " in run.stdout and "95 % interval" in run.stdout
    counts = re.search(r"killed (\d+) of (\d+): .*, (\d+) known to be equivalent", run.stdout)
    assert counts is not None
    killed, judged, left_out = map(int, counts.groups())
    assert judged + left_out == 8 and killed + run.stdout.count("survived methods/config.py") == judged
    assert killed >= 4
    assert "stopped" not in run.stdout
