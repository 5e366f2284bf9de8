"""A parsed divergence as numbers (walking the tree, at mpmath's precision) and as SymPy expressions.

D = F(sum_i f_1(mu_i, pi_i), sum_i f_2(mu_i, pi_i), ...): F is the identity for a plain sum( ). The two readings share
nothing but the tree, so that numbers can certify what SymPy derives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from mpmath import exp, fsum, log, mpf, nstr, sqrt
from sympy import Abs, Dummy, Expr, Integer, Pow, Rational, Symbol, cancel, diff, expand, factor, sign
from sympy import exp as exp_
from sympy import log as log_
from sympy import sqrt as sqrt_

from derivations.new.budget import Budget
from derivations.new.parser import ExpressionError, Node, parse
from derivations.setting import Table
from derivations.sums import Range, total

p = Symbol("p", positive=True)  # mu of one token
q = Symbol("q", positive=True)  # pi of one token
index = Symbol("i", integer=True, nonnegative=True)
FINEST_ROOT = 12
ZERO = 1e-10


@dataclass(frozen=True)
class Divergence:
    """source: as typed. tree: parsed. outer: F of the symbols `sums`. terms: f_j of p and q, one per sum."""

    source: str
    tree: Node
    outer: Expr
    sums: tuple[Symbol, ...]
    terms: tuple[Expr, ...]
    budget: Budget = field(default_factory=Budget, compare=False, repr=False)
    _short: dict[Expr, Expr] = field(default_factory=dict, compare=False, repr=False)

    def over(self, *parts: Callable[[Expr], Expr]) -> Expr:
        """F where the sum of a term is the sum of what `parts` make of it (a range of tokens, a tail class)."""
        values = {s: sum((part(f) for part in parts), Integer(0)) for s, f in zip(self.sums, self.terms, strict=True)}
        return self.outer.xreplace(values)

    def slopes(self) -> tuple[Expr, ...]:
        """d f_j / d pi of one token, in simple form."""
        return tuple(self.shorter(diff(term, q)) for term in self.terms)

    def shorter(self, expr: Expr) -> Expr:
        """`simple`, as far as it comes in time; remembered, so that a form is the same wherever it is used."""
        if expr not in self._short:
            self._short[expr] = self.budget.tried("a simple form", lambda: simple(expr), expr)
        return self._short[expr]

    @property
    def bends(self) -> bool:
        """Whether F is other than affine, so that its slopes depend on the sums."""
        return any(f.has(*self.sums) for f in self.outer_slopes())

    def outer_slopes(self) -> tuple[Expr, ...]:
        """dF / d(sum j), in the symbols `sums`."""
        return tuple(diff(self.outer, s) for s in self.sums)

    def has_root_of_zero(self) -> bool:
        """Whether a root is taken of what is 0 at pi = mu, where it has a kink."""
        numbers, half = _Numbers(self.source), mpf("0.5")

        def at_zero(node: Node, within: bool) -> bool:
            root = node.kind == "sqrt" or (node.kind == "^" and node.children[1].number.denominator > 1)
            if root:
                below = node.children[0]
                value = numbers.inside(below, half, half) if within else numbers.outside(below, [half] * 2, [half] * 2)
                if abs(value) < ZERO:
                    return True
            return any(at_zero(child, within or node.kind == "sum") for child in node.children)

        return at_zero(self.tree, False)

    def number(self, mu: Sequence[mpf], pi: Sequence[mpf]) -> mpf:
        """D of two lists of positive numbers. Raises ExpressionError where a part is not defined there."""
        return _Numbers(self.source).outside(self.tree, mu, pi)


def divergence(source: str) -> Divergence:
    """Read a divergence. Raises ExpressionError pointing at the place."""
    tree = parse(source)
    nodes = list(tree.sums())
    symbols = tuple(Symbol(f"s_{number}", real=True) for number in range(1, len(nodes) + 1))
    names = {id(node): symbol for node, symbol in zip(nodes, symbols, strict=True)}
    terms = tuple(_symbolic(node.children[0], {}) for node in nodes)
    return Divergence(source, tree, _symbolic(tree, names), symbols, terms)


def simple(expr: Expr) -> Expr:
    """A short form. Only rational operations: others would split logarithms, or move factors into them."""
    if beyond_algebra(expr):
        return expr
    opaque = {f: Dummy() for f in expr.atoms(log_, exp_, sign, Abs)}
    reduced = cancel(expr.xreplace(opaque))
    back = {dummy: f for f, dummy in opaque.items()}
    forms = (expr, *(f.xreplace(back) for f in (reduced, factor(reduced), expand(reduced))))
    return min(forms, key=length)


def beyond_algebra(expr: Expr) -> bool:
    """Whether it has a root so fine that polynomials in it, of that degree, would fill the memory."""
    return any(power.exp.is_Rational and power.exp.q > FINEST_ROOT for power in expr.atoms(Pow))


def length(expr: Expr) -> tuple[int, str]:
    """Order of forms: short ones first, equally short ones by their text, so that the choice is the same every time."""
    return expr.count_ops(), str(expr)


def placed(term: Expr, table: Table, token: Expr, mu: Table) -> Expr:
    """f_j(mu_i, pi_i) for a token."""
    return term.xreplace({p: mu(token), q: table(token)})


def summed(mu: Table, policy: Table, over: Range) -> Callable[[Expr], Expr]:
    """term -> its sum over a range of tokens."""
    return lambda term: total(placed(term, policy, index, mu), index, over)


def _symbolic(node: Node, sums: dict[int, Symbol]) -> Expr:
    if id(node) in sums:
        return sums[id(node)]
    parts = [_symbolic(child, sums) for child in node.children]
    match node.kind:
        case "number":
            return Rational(node.number.numerator, node.number.denominator)
        case "mu":
            return p
        case "pi":
            return q
        case "negate":
            return -parts[0]
        case "+":
            return parts[0] + parts[1]
        case "-":
            return parts[0] - parts[1]
        case "*":
            return parts[0] * parts[1]
        case "/":
            return parts[0] / parts[1]
        case "^":
            return parts[0] ** parts[1]
        case name:
            argument = Budget(2).tried("", partial(simple, parts[0]), parts[0]) if name == "abs" else parts[0]
            return {"abs": Abs, "exp": exp_, "log": log_, "sqrt": sqrt_}[name](argument)


class _Numbers:
    """Values of nodes; what is not a real number is an error at the node."""

    def __init__(self, source: str) -> None:
        self.source = source

    def outside(self, node: Node, mu: Sequence[mpf], pi: Sequence[mpf]) -> mpf:
        if node.kind == "sum":
            return fsum(self.inside(node.children[0], m, p) for m, p in zip(mu, pi, strict=True))
        return self._value(node, [self.outside(child, mu, pi) for child in node.children], "")

    def inside(self, node: Node, mu: mpf, pi: mpf) -> mpf:
        if node.kind in ("mu", "pi"):
            return mu if node.kind == "mu" else pi
        where = f" at mu = {nstr(mu, 3)}, pi = {nstr(pi, 3)} of one token"
        return self._value(node, [self.inside(child, mu, pi) for child in node.children], where)

    def _value(self, node: Node, parts: list[mpf], where: str) -> mpf:
        def refuse(what: str, place: Node) -> ExpressionError:
            return ExpressionError(f"{what}{where}", self.source, place.start, place.end)

        match node.kind, parts:
            case "number", _:
                return mpf(node.number.numerator) / node.number.denominator
            case "negate", [x]:
                return -x
            case "+", [x, y]:
                return x + y
            case "-", [x, y]:
                return x - y
            case "*", [x, y]:
                return x * y
            case "/", [x, y]:
                if y == 0:
                    raise refuse("division by zero", node.children[1])
                return x / y
            case "^", [x, y]:
                if x == 0 and y < 0:
                    raise refuse("zero to a negative power", node)
                if x < 0 and y != int(y):
                    raise refuse(f"{nstr(x, 3)} to the power {nstr(y, 3)} is no real number", node)
                return x**y
            case "abs", [x]:
                return abs(x)
            case "exp", [x]:
                if x > 1000:
                    raise refuse(f"exp of {nstr(x, 3)} is beyond any number used here", node)
                return exp(x)
            case "log", [x]:
                if x <= 0:
                    raise refuse(f"log of {nstr(x, 3)} is no real number", node)
                return log(x)
            case "sqrt", [x]:
                if x < 0:
                    raise refuse(f"sqrt of {nstr(x, 3)} is no real number", node)
                return sqrt(x)
        raise AssertionError(f"the parser knows no {node.kind}")
