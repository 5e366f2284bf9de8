"""Exact algebra of finite sums whose number of terms is a symbol.

SymPy differentiates `Sum(f(i), (i, 0, n - 1))` correctly, but `simplify` on the result may crash or let a bound index
escape. This file replaces it by five elementary rules, applied innermost sum first, which hold for every n:

1. linearity: a sum of terms is split, and a factor without the index leaves the sum;
2. a constant term is multiplied by the number of terms;
3. sifting: a Kronecker delta picks one term if its token is known to lie in the range, none if known to lie outside;
4. stated facts, such as sum_i mu_i = 1, replace the sum they speak of;
5. the logarithm of a product of positive factors is the sum of their logarithms.

What remains is a rational expression in finitely many distinct sums and table entries. Treating those as independent
unknowns can only miss an equality, never invent one, so `Facts.equal` errs on the side of refusing a proof.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from sympy import (
    Add,
    Dummy,
    Expr,
    Float,
    Indexed,
    KroneckerDelta,
    LambertW,
    Mul,
    Pow,
    Rational,
    S,
    Sum,
    Symbol,
    cancel,
    exp,
    expand,
    expand_log,
    factor,
    fraction,
    log,
    sign,
    sympify,
    together,
)

Range = tuple[Expr, Expr]  # first and last token id of a sum, both included


TINY = Float("1e-15")  # at 30 digits no rounding of a vanishing expression comes near


class SumError(ValueError):
    """A sum that the five rules cannot treat without an assumption that nobody stated."""


def _bound(depth: int) -> Symbol:
    """The reserved name of a bound index; equal sums then become structurally equal."""
    return Symbol("l" if depth == 0 else f"l{depth}", integer=True, nonnegative=True)


def apart_from_exponentials(change: Callable[[Expr], Expr], expr: Expr) -> Expr:
    """change(expr) with every exp(sum over tokens) left alone: SymPy would write it as a Product, which no rule knows.

    Only those without a free token, into which nothing can be put later.
    """
    held = {e: Dummy(positive=True) for e in expr.atoms(exp) if e.has(Sum) and not any(map(_is_token, e.free_symbols))}
    return change(expr.xreplace(held)).xreplace({dummy: e for e, dummy in held.items()})


def _is_token(symbol: Symbol) -> bool:
    return bool(symbol.is_integer) and not symbol.is_positive


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


def _unknown(atom: Expr) -> Dummy:
    """A symbol in the place of a sum or an entry; every quantity here is real, and a sum of positive terms positive."""
    summand = atom.function if isinstance(atom, Sum) else atom
    return Dummy(positive=True) if summand.is_positive else Dummy(real=True)


@dataclass(frozen=True, eq=False)  # compared by identity, so that results can be remembered per set of facts
class Facts:
    """What a proof may use.

    inside, outside: for a token symbol, the ranges that contain it and the ranges that do not.
    known: pairs (sum, value), for example (sum_i mu_i, 1).
    """

    inside: Mapping[Symbol, tuple[Range, ...]] = field(default_factory=dict)
    outside: Mapping[Symbol, tuple[Range, ...]] = field(default_factory=dict)
    known: tuple[tuple[Expr, Expr], ...] = ()

    def normal(self, expr: Expr) -> Expr:
        """Normal form of `expr` under the five rules and the stated facts.

        Raises SumError if a Kronecker delta meets a range about which nothing was stated.
        """
        return _normal(self, expr)

    def _normal(self, expr: Expr) -> Expr:
        plain = Facts(self.inside, self.outside)
        if clash := [s for s in sympify(expr).free_symbols if re.fullmatch(r"l\d*", s.name)]:
            raise SumError(f"names l, l1, l2, ... are reserved for bound indices, got them free: {clash}")
        table = {plain._reduce(left, {}): right for left, right in self.known}
        expr = sympify(expr).replace(exp, lambda x: exp(_collect(self._reduce(x, table))) if x.has(Sum) else exp(x))
        return apart_from_exponentials(lambda e: _collect(self._reduce(e, table)), expr)

    def equal(self, left: Expr, right: Expr) -> bool:
        """True only if left - right vanishes by the rules above, for every vocabulary size."""
        return self.remainder(left, right) == 0

    def remainder(self, left: Expr, right: Expr) -> Expr:
        """left - right in independent unknowns; 0 means proved equal. One fraction, unless it plainly differs."""
        return _remainder(self.normal(left) - self.normal(right))

    def _reduce(self, expr: Expr, table: Mapping[Expr, Expr]) -> Expr:
        if expr.is_Atom or isinstance(expr, Indexed | KroneckerDelta):
            return expr
        if isinstance(expr, Sum):
            return self._reduce_sum(expr, table)
        rebuilt = expr.func(*(self._reduce(a, table) for a in expr.args))
        if isinstance(rebuilt, log):
            return _split(rebuilt.args[0])
        if isinstance(rebuilt, sign):  # x - y, y - x and 2 y - 2 x must have one spelling up to a factor
            argument = factor(together(rebuilt.args[0]))
            return -sign(-argument) if argument.could_extract_minus_sign() else sign(argument)
        return expand(rebuilt, log=False) if isinstance(rebuilt, Add | Mul | Pow) else rebuilt

    def _reduce_sum(self, expr: Sum, table: Mapping[Expr, Expr]) -> Expr:
        result = expr.function
        for limit in expr.limits:  # SymPy merges a sum of sums into one with several limits, the innermost first
            if len(limit) != 3:
                raise SumError(f"a sum needs a first and a last token, got {expr}")
            index, low, high = limit
            result = _over_common_denominators(expand(self._reduce(result, table), log=False), index)
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


def _differs_somewhere(expr: Expr) -> bool:
    """True if `expr` is plainly not zero at one point: the cheap way to refuse what is wrong. It never accepts."""
    if expr.has(exp, LambertW):  # nested, these may cost SymPy more digits, and minutes, than the algebra does
        return False
    symbols = sorted(expr.free_symbols, key=str)
    point = {symbol: Float(Rational(place + 2, 2 * len(symbols) + 7), 30) for place, symbol in enumerate(symbols)}
    value = expr.xreplace(point)
    return bool(value.is_Float and abs(value) > TINY)


def _over_common_denominators(expr: Expr, index: Symbol) -> Expr:
    """Add up the terms that share their factor without `index` and have a sum of entries as denominator.

    Written apart, 1 / (x + y) - x / (x + y)^2 - y / (x + y)^2 would leave three sums that nobody sees cancel.
    """
    plain: list[Expr] = []
    groups: dict[Expr, Expr] = {}
    for term in Add.make_args(expr):
        number, rest = term.as_coeff_Mul()
        outer, inner = rest.as_independent(index, as_Add=False)
        if fraction(inner)[1].has(Add):
            groups[outer] = groups.get(outer, S.Zero) + number * inner
        else:
            plain.append(term)
    return Add(*plain, *(expand(outer * cancel(together(inner)), log=False) for outer, inner in groups.items()))


def _split(argument: Expr) -> Expr:
    """log(argument) by rule 5; only factors that SymPy knows to be positive leave the product."""
    return expand_log(log(factor(together(argument))))


@lru_cache(maxsize=4096)
def _normal(facts: Facts, expr: Expr) -> Expr:
    return facts._normal(expr)


@lru_cache(maxsize=4096)
def _remainder(difference: Expr) -> Expr:
    # xreplace works from the outside in, so a sum inside a sum is never looked at on its own.
    unknowns = {a: _unknown(a) for a in difference.atoms(Sum)}
    reduced = difference.xreplace(unknowns)
    entries = {a: _unknown(a) for a in reduced.atoms(Indexed, KroneckerDelta)}
    reduced = reduced.xreplace(entries).replace(log, _split)
    if not _differs_somewhere(reduced):
        reduced = cancel(together(expand(reduced)))
    return reduced.xreplace({v: k for k, v in (unknowns | entries).items()})
