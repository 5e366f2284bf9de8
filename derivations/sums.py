"""Exact algebra of finite sums whose number of terms is a symbol.

SymPy differentiates `Sum(f(i), (i, 0, n - 1))` correctly, but `simplify` on the result may crash or let a bound index
escape. This file replaces it by four elementary rules, applied innermost sum first, which hold for every n:

1. linearity: a sum of terms is split, and a factor without the index leaves the sum;
2. a constant term is multiplied by the number of terms;
3. sifting: a Kronecker delta picks one term if its token is known to lie in the range, none if known to lie outside;
4. stated facts, such as sum_i mu_i = 1, replace the sum they speak of.

What remains is a rational expression in finitely many distinct sums and table entries. Treating those as independent
unknowns can only miss an equality, never invent one, so `Facts.equal` errs on the side of refusing a proof.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from sympy import (
    Add,
    Dummy,
    Expr,
    Indexed,
    KroneckerDelta,
    Mul,
    Pow,
    S,
    Sum,
    Symbol,
    cancel,
    expand,
    factor,
    fraction,
    sympify,
    together,
)

Range = tuple[Expr, Expr]  # first and last token id of a sum, both included


class SumError(ValueError):
    """A sum that the four rules cannot treat without an assumption that nobody stated."""


def _bound(depth: int) -> Symbol:
    """The reserved name of a bound index; equal sums then become structurally equal."""
    return Symbol("l" if depth == 0 else f"l{depth}", integer=True, nonnegative=True)


def _collect(expr: Expr) -> Expr:
    """Add up terms that differ only in a factor made of sizes (n, m), so that the result can be read."""
    groups: dict[Expr, Expr] = {}
    for term in Add.make_args(expr):
        numerator, denominator = fraction(term)
        sizes: list[Expr] = []
        rest: list[Expr] = []
        for part in Mul.make_args(numerator / factor(denominator)):
            is_size = all(s.is_integer for s in part.atoms(Symbol)) and not part.has(Indexed, KroneckerDelta, Sum)
            (sizes if is_size else rest).append(part)
        groups[Mul(*rest)] = groups.get(Mul(*rest), S.Zero) + Mul(*sizes)
    return Add(*(factor(number) * rest for rest, number in groups.items()))


def total(term: Expr, index: Symbol, over: Range) -> Expr:
    """sum of `term` for `index` from over[0] to over[1], left unevaluated."""
    return Sum(term, (index, over[0], over[1]))


@dataclass(frozen=True)
class Facts:
    """What a proof may use.

    inside, outside: for a token symbol, the ranges that contain it and the ranges that do not.
    known: pairs (sum, value), for example (sum_i mu_i, 1).
    """

    inside: Mapping[Symbol, tuple[Range, ...]] = field(default_factory=dict)
    outside: Mapping[Symbol, tuple[Range, ...]] = field(default_factory=dict)
    known: tuple[tuple[Expr, Expr], ...] = ()

    def normal(self, expr: Expr) -> Expr:
        """Normal form of `expr` under the four rules and the stated facts.

        Raises SumError if a Kronecker delta meets a range about which nothing was stated.
        """
        plain = Facts(self.inside, self.outside)
        if clash := [s for s in sympify(expr).free_symbols if re.fullmatch(r"l\d*", s.name)]:
            raise SumError(f"names l, l1, l2, ... are reserved for bound indices, got them free: {clash}")
        table = {plain._reduce(left, {}): right for left, right in self.known}
        return _collect(self._reduce(sympify(expr), table))

    def equal(self, left: Expr, right: Expr) -> bool:
        """True only if left - right vanishes by the rules above, for every vocabulary size."""
        return self.remainder(left, right) == 0

    def remainder(self, left: Expr, right: Expr) -> Expr:
        """left - right as one reduced fraction of independent unknowns; 0 means proved equal."""
        difference = self.normal(left - right)
        # xreplace works from the outside in, so a sum inside a sum is never looked at on its own.
        unknowns = {a: Dummy() for a in difference.atoms(Sum)}
        reduced = difference.xreplace(unknowns)
        entries = {a: Dummy() for a in reduced.atoms(Indexed, KroneckerDelta)}
        reduced = cancel(together(reduced.xreplace(entries)))
        return reduced.xreplace({v: k for k, v in (unknowns | entries).items()})

    def _reduce(self, expr: Expr, table: Mapping[Expr, Expr]) -> Expr:
        if expr.is_Atom or isinstance(expr, Indexed | KroneckerDelta):
            return expr
        if isinstance(expr, Sum):
            return self._reduce_sum(expr, table)
        rebuilt = expr.func(*(self._reduce(a, table) for a in expr.args))
        return expand(rebuilt, log=False) if isinstance(rebuilt, Add | Mul | Pow) else rebuilt

    def _reduce_sum(self, expr: Sum, table: Mapping[Expr, Expr]) -> Expr:
        result = expr.function
        for limit in expr.limits:  # SymPy merges a sum of sums into one with several limits, the innermost first
            if len(limit) != 3:
                raise SumError(f"a sum needs a first and a last token, got {expr}")
            index, low, high = limit
            result = expand(self._reduce(result, table), log=False)
            terms = (self._reduce_term(t, index, (low, high), table) for t in Add.make_args(result))
            result = expand(Add(*terms), log=False)
        return result

    def _reduce_term(self, term: Expr, index: Symbol, over: Range, table: Mapping[Expr, Expr]) -> Expr:
        numerator, denominator = fraction(term)
        outer, inner = (numerator / factor(denominator)).as_independent(index, as_Add=False)
        if inner == 1:
            return outer * (over[1] - over[0] + 1)
        for part in Mul.make_args(inner):
            if isinstance(part, KroneckerDelta) and index in part.args:
                token = part.args[0] if part.args[1] == index else part.args[1]
                if not self._contains(over, token):
                    return S.Zero
                return outer * (inner / part).xreplace({index: token})
        depth = len({s.variables[0] for s in inner.atoms(Sum)})
        name = _bound(depth)
        if name != index and name in inner.free_symbols:
            raise SumError(f"the index name {name} is reserved for bound indices, got it free in {inner}")
        canonical = Sum(inner.xreplace({index: name}), (name, *over))
        return outer * table.get(canonical, canonical)

    def _contains(self, over: Range, token: Expr) -> bool:
        if over in self.inside.get(token, ()):
            return True
        if over in self.outside.get(token, ()):
            return False
        raise SumError(f"nothing states whether token {token} lies in {over[0]}..{over[1]}")
