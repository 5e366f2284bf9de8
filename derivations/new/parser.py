"""A divergence as text, `sum(mu*log(mu/pi))`, to a small tree. Nothing is ever evaluated as Python.

    expression := term  (("+" | "-") term)*            mu, pi      one token's probabilities, inside sum( ) only
    term       := signed (("*" | "/") signed)*         sum( )      over all tokens; sums do not nest
    signed     := ("+" | "-") signed | power           functions   abs exp log sqrt
    power      := atom (("^" | "**") signed)?          exponents   plain numbers such as 2, 1/2 or -0.5
    atom       := number | mu | pi | name "(" expression ")" | "(" expression ")"

Every node keeps its place in the text, so that an error, also one found much later, can point at it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from fractions import Fraction

FUNCTIONS = ("abs", "exp", "log", "sqrt")
PROBABILITIES = ("mu", "pi")
ALIASES = {"μ": "mu", "µ": "mu", "π": "pi", "**": "^", "−": "-", "·": "*", "×": "*"}
# Far above any divergence one would write, far below what could exhaust a recursive parser or SymPy's powers.
MAX_LENGTH, MAX_DEPTH, MAX_EXPONENT, MAX_NESTED = 400, 40, 16, 64
_TOKEN = re.compile(r"\s*(?:(?P<number>\d+\.?\d*|\.\d+)|(?P<name>[^\W\d]\w*)|(?P<mark>\*\*|[-+*/^()−·×]))")


class ExpressionError(ValueError):
    """What is wrong with an expression, and where: the message shows the text with a caret below the place."""

    def __init__(self, message: str, source: str, start: int, end: int | None = None) -> None:
        width = max(1, (start + 1 if end is None else end) - start)
        super().__init__(f"{message}\n  {source}\n  {' ' * start}{'^' * width}")


@dataclass(frozen=True)
class Node:
    """kind: number, mu, pi, sum, negate, + - * / ^, or the name of a function. start, end: place in the text."""

    kind: str
    start: int
    end: int
    children: tuple[Node, ...] = ()
    number: Fraction = Fraction(0)

    def sums(self) -> Iterator[Node]:
        """Every sum( ) in reading order."""
        if self.kind == "sum":
            yield self
        else:
            for child in self.children:
                yield from child.sums()


@dataclass(frozen=True)
class _Token:
    kind: str  # number, name, mark, end
    text: str
    start: int
    end: int


def parse(source: str) -> Node:
    """The tree of `source`. Raises ExpressionError, which points at the place."""
    if "\n" in source or not source.isprintable():
        raise ValueError(f"the expression must be one line of text, got {source!r}")
    if len(source) > MAX_LENGTH:
        raise ExpressionError(f"longer than {MAX_LENGTH} characters", source[:60] + " ...", 60)
    tree = _Parser(source).whole()
    if not any(True for _ in tree.sums()):
        raise ExpressionError("not a sum over tokens: a divergence needs at least one sum( )", source, 0, len(source))
    return tree


class _Parser:
    def __init__(self, source: str) -> None:
        self.source = source
        self.tokens = list(self._split())
        self.place = 0
        self.depth = 0
        self.in_sum: _Token | None = None

    def whole(self) -> Node:
        tree = self.expression()
        if self.next.kind != "end":
            raise self.error(
                "a closing bracket without an opening one" if self.next.text == ")" else "an operator is missing here"
            )
        return tree

    def _split(self) -> Iterator[_Token]:
        place, end = 0, len(self.source.rstrip())
        while place < end:
            found = _TOKEN.match(self.source, place)
            if found is None:
                start = place + len(self.source[place:]) - len(self.source[place:].lstrip())
                raise ExpressionError(f"unexpected character {self.source[start]!r}", self.source, start)
            kind = str(found.lastgroup)
            text = found.group(kind)
            yield _Token(kind, ALIASES.get(text, text), *found.span(kind))
            place = found.end()
        yield _Token("end", "", end, end + 1)

    @property
    def next(self) -> _Token:
        return self.tokens[self.place]

    def take(self) -> _Token:
        self.place += 1
        return self.tokens[self.place - 1]

    def error(self, message: str, token: _Token | Node | None = None) -> ExpressionError:
        at = token or self.next
        return ExpressionError(message, self.source, at.start, at.end)

    def expression(self) -> Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.error(f"nested deeper than {MAX_DEPTH} levels")
        left = self.term()
        while self.next.text in ("+", "-"):
            left = self._join(self.take(), left, self.term())
        self.depth -= 1
        return left

    def term(self) -> Node:
        left = self.signed()
        while self.next.text in ("*", "/"):
            left = self._join(self.take(), left, self.signed())
        return left

    def signed(self) -> Node:
        if self.next.text not in ("+", "-"):
            return self.power()
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.error(f"nested deeper than {MAX_DEPTH} levels")
        sign, operand = self.take(), self.signed()
        self.depth -= 1
        return operand if sign.text == "+" else Node("negate", sign.start, operand.end, (operand,))

    def power(self) -> Node:
        base = self.atom()
        if self.next.text != "^":
            return base
        mark, exponent = self.take(), self.signed()
        value = _constant(exponent)
        if value is None or abs(value) > MAX_EXPONENT:
            raise self.error(f"an exponent must be a number between -{MAX_EXPONENT} and {MAX_EXPONENT}", exponent)
        if (height := abs(value) * _height(base)) > MAX_NESTED:
            raise self.error(f"powers of powers reach {float(height):g}, allowed are {MAX_NESTED}", exponent)
        return self._join(mark, base, Node("number", exponent.start, exponent.end, (), value))

    def _join(self, mark: _Token, left: Node, right: Node) -> Node:
        return Node(mark.text, left.start, right.end, (left, right))

    def atom(self) -> Node:
        token = self.take()
        if token.kind == "number":
            return Node("number", token.start, token.end, (), Fraction(token.text))
        if token.text == "(":
            return self._bracketed(token)
        if token.kind == "name":
            return self._named(token)
        if token.kind == "end":
            raise self.error("the expression ends where a value is expected", token)
        raise self.error(f"{token.text!r} where a value is expected", token)

    def _bracketed(self, opening: _Token) -> Node:
        inner = self.expression()
        if self.next.kind == "end":
            raise self.error("this bracket is never closed", opening)
        if self.next.text != ")":
            raise self.error("an operator is missing here")
        self.take()
        return inner

    def _named(self, token: _Token) -> Node:
        name = ALIASES.get(token.text, token.text)
        if name in PROBABILITIES:
            if self.in_sum is None:
                raise self.error(
                    f"{name} outside a sum: it is one token's probability, write sum(... {name} ...)", token
                )
            return Node(name, token.start, token.end)
        if name not in (*FUNCTIONS, "sum"):
            known = (*PROBABILITIES, "sum", *FUNCTIONS)
            close = get_close_matches(name, known, 1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise self.error(f"unknown name {name!r}, allowed are {', '.join(known)}{hint}", token)
        if self.next.text != "(":
            raise self.error(f"{name} needs brackets: {name}(...)", token)
        if name == "sum":
            if self.in_sum is not None:
                raise self.error("a sum inside a sum: every sum( ) runs over all tokens already", token)
            self.in_sum = token
        inner = self._bracketed(self.take())
        if name == "sum":
            self.in_sum = None
        return Node(name, token.start, self.tokens[self.place - 1].end, (inner,))


def _height(node: Node) -> Fraction:
    """The largest product of exponents on a way down from this node, at least 1."""
    below = max((_height(child) for child in node.children), default=Fraction(1))
    return max(Fraction(1), abs(node.children[1].number) * below) if node.kind == "^" else below


def _constant(node: Node) -> Fraction | None:
    """The value of a node made of numbers and + - * / only, or None."""
    if node.kind == "number":
        return node.number
    values = [_constant(child) for child in node.children]
    if any(value is None for value in values):
        return None
    numbers = [value for value in values if value is not None]
    match node.kind, numbers:
        case "negate", [x]:
            return -x
        case "+", [x, y]:
            return x + y
        case "-", [x, y]:
            return x - y
        case "*", [x, y]:
            return x * y
        case "/", [x, y] if y != 0:
            return x / y
    return None
