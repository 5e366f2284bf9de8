"""Small faults for a Python file: comparisons, arithmetic, logic, constants, branches, statements, torch functions.

Annotations, decorators, docstrings, messages of errors, help texts, imports and `if __name__ == "__main__"` are left
alone: a change there is no fault.
"""

from __future__ import annotations

import ast
import copy
import difflib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

COMPARE = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
BINARY = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
}
NAMES = {
    "sum": "mean",
    "mean": "sum",
    "any": "all",
    "all": "any",
    "min": "max",
    "max": "min",
    "amax": "amin",
    "amin": "amax",
    "minimum": "maximum",
    "maximum": "minimum",
    "exp": "expm1",
    "expm1": "exp",
    "log": "log1p",
    "log1p": "log",
    "square": "abs",
    "abs": "square",
    "cumsum": "cumprod",
    "ceil": "floor",
    "floor": "ceil",
}
# Arguments that tell a person something, or assert what holds.
WORDS = ("help", "description", "prog", "metavar", "strict")


@dataclass(frozen=True)
class Mutant:
    """One fault: `node` is its place in the walk of the tree, `variant` which of the faults there; line from 1."""

    path: str
    node: int
    variant: int
    operator: str
    line: int


def mutants(path: str, source: str) -> list[Mutant]:
    """All faults of a file, in the order of its text."""
    return [
        Mutant(path, place, variant, operator, node.lineno)
        for place, node in enumerate(_places(ast.parse(source)))
        for variant, (operator, _) in enumerate(_faults(node))
    ]


def mutate(source: str, mutant: Mutant) -> ast.Module:
    """The file's tree with that one fault."""
    tree = ast.parse(source)
    node: Any = list(_places(tree))[mutant.node]
    _, replacement = list(_faults(node))[mutant.variant]
    _Swap(node, replacement).visit(tree)
    return ast.fix_missing_locations(tree)


def difference(source: str, mutant: Mutant) -> str:
    """The fault as a diff of the two files' normalised texts, without context."""
    before = ast.unparse(ast.parse(source)).splitlines()
    after = ast.unparse(mutate(source, mutant)).splitlines()
    changes = difflib.unified_diff(before, after, n=0, lineterm="")
    return "\n".join(line for line in changes if not line.startswith(("---", "+++", "@@")))


def excerpt(diff: str, around: int = 60) -> str:
    """A diff for people: long lines are cut to what differs and a little around it."""
    lines = diff.splitlines()
    if len(lines) != 2 or max(map(len, lines)) <= 120:
        return diff
    old, new = (line[1:] for line in lines)
    same = len(os.path.commonprefix([old, new]))
    tail = min(len(os.path.commonprefix([old[::-1], new[::-1]])), len(old) - same, len(new) - same)
    start = max(0, same - around)
    cut = [line[start : len(line) - tail + around] for line in (old, new)]
    return f"-{'… ' if start else ''}{cut[0]}\n+{'… ' if start else ''}{cut[1]}"


def enclosing_functions(source: str) -> dict[int, tuple[int, int]]:
    """{line: (first, last line) of the outermost function around it}; lines outside every function are missing."""
    spans: dict[int, tuple[int, int]] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            for line in range(first, (node.end_lineno or first) + 1):
                kept = spans.get(line, (first, node.end_lineno or first))
                spans[line] = kept if kept[0] < first else (first, node.end_lineno or first)
    return spans


class _Swap(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> Any:
        return ast.copy_location(self.new, node) if node is self.old else super().visit(node)


def _places(tree: ast.AST) -> Iterator[Any]:
    """Nodes in which a fault may be, in a fixed order."""
    for field, value in ast.iter_fields(tree):
        if field in ("annotation", "returns", "decorator_list"):
            continue
        if isinstance(tree, ast.keyword) and tree.arg in WORDS:
            continue
        for node in value if isinstance(value, list) else [value]:
            if not isinstance(node, ast.AST) or isinstance(node, ast.Import | ast.ImportFrom | ast.JoinedStr):
                continue
            if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test):
                continue
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                continue  # a docstring
            if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Literal":
                continue
            if isinstance(node, ast.stmt | ast.expr):
                yield node
            if isinstance(node, ast.Raise):
                continue  # what a message says is no fault; that it is raised is (the statement itself was yielded)
            yield from _places(node)


def _faults(node: Any) -> Iterator[tuple[str, ast.AST]]:
    """(operator, what stands in the node's place) for each fault of the node itself."""
    new = copy.deepcopy(node)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in COMPARE:
        new.ops = [COMPARE[type(node.ops[0])]()]
        yield "comparison", new
    elif isinstance(node, ast.BinOp) and type(node.op) in BINARY:
        new.op = BINARY[type(node.op)]()
        yield "arithmetic", new
    elif isinstance(node, ast.BoolOp):
        new.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield "logic", new
    elif isinstance(node, ast.UnaryOp) and ast.unparse(node) != "-1":
        # Axis 1 of a matrix is axis -1; the constant's own fault makes it -2.
        yield "sign or not", new.operand
    elif isinstance(node, ast.Constant):
        yield from _constants(node)
    elif isinstance(node, ast.IfExp):
        new.body, new.orelse = new.orelse, new.body
        yield "branches swapped", new
    elif isinstance(node, ast.If):
        new.test = ast.UnaryOp(ast.Not(), new.test)
        yield "condition negated", new
    elif isinstance(node, ast.Call):
        yield from _calls(node)
    elif isinstance(node, ast.Raise | ast.AugAssign) or isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield "statement removed", ast.Pass()


def _constants(node: ast.Constant) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(node.value, bool):
        yield "constant", ast.Constant(not node.value)
    elif isinstance(node.value, int):
        yield "constant", ast.Constant(node.value + 1)
    elif isinstance(node.value, float):
        yield "constant", ast.Constant(2 * node.value if node.value else 1.0)
    elif isinstance(node.value, str):
        yield "constant", ast.Constant(node.value + "_")


def _calls(node: ast.Call) -> Iterator[tuple[str, ast.AST]]:
    new = copy.deepcopy(node)
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name in NAMES and isinstance(new.func, ast.Attribute):
        new.func.attr = NAMES[name]
        yield "function", new
    if name == "where" and len(node.args) == 3:
        swapped = copy.deepcopy(node)
        swapped.args[1:] = swapped.args[:0:-1]
        yield "branches swapped", swapped
    owner = node.func.value if isinstance(node.func, ast.Attribute) else None
    if (
        owner is not None
        and ast.unparse(owner) != "torch"
        and name in ("clamp", "clamp_", "detach", "nan_to_num", "masked_fill")
    ):
        yield "call removed", copy.deepcopy(owner)
