"""A proof as a list of steps, each of them checked when it is written down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from sympy import Abs, Derivative, Expr, Subs, Symbol, cancel, diff, factor, sign, together

from derivations.sums import Facts


class ProofError(Exception):
    """A step that does not hold, or that SymPy cannot show to hold."""


@dataclass(frozen=True)
class Step:
    """One checked line: `left relation right`, because of `reason` (English with $...$)."""

    reason: str
    left: Expr
    relation: str  # "=", ">" or ">="
    right: Expr


@dataclass
class Proof:
    """Collects steps under fixed facts. Every method raises ProofError instead of recording a step it cannot check."""

    facts: Facts = field(default_factory=Facts)
    steps: list[Step] = field(default_factory=list)

    def differentiate(self, reason: str, function: Expr, variable: Expr, at: Expr | None = None) -> Expr:
        """d function / d variable, at a value if one is given, brought to normal form."""
        if at is not None and not isinstance(variable, Symbol):
            raise TypeError(f"only a derivative in a plain symbol can be evaluated at a value, got {variable}")
        shown, value = _derivative(self.facts, function, variable, at)
        self.steps.append(Step(reason, shown, "=", value))
        return value

    def equal(self, reason: str, left: Expr, right: Expr) -> Expr:
        """Check left = right for every n and return right."""
        rest = self.facts.remainder(_signs(left), _signs(right))
        if rest != 0:
            raise ProofError(f"{reason}: left and right differ by {rest}\n  left:  {left}\n  right: {right}")
        self.steps.append(Step(reason, left, "=", right))
        return right

    def greater(self, reason: str, larger: Expr, smaller: Expr) -> None:
        """Check larger > smaller from the declared signs of the symbols."""
        reduced = self._difference(larger, smaller)
        if reduced.is_positive is not True:
            raise ProofError(f"{reason}: the declared signs do not show that {reduced} > 0")
        self.steps.append(Step(reason, larger, ">", smaller))

    def at_least(self, reason: str, larger: Expr, smaller: Expr, using: Mapping[Expr, Expr] | None = None) -> None:
        """Check larger >= smaller from the declared signs of the symbols.

        using: an equality between symbols that may be needed to see the sign, as {symbol: value}.
        """
        reduced = self._difference(larger, smaller)
        if reduced.is_nonnegative is not True and using is not None:
            reduced = self._difference(larger.xreplace(using), smaller.xreplace(using))
        if reduced.is_nonnegative is not True:
            raise ProofError(f"{reason}: the declared signs do not show that {reduced} >= 0")
        self.steps.append(Step(reason, larger, ">=", smaller))

    def _difference(self, larger: Expr, smaller: Expr) -> Expr:
        return _factored(_signs(self.facts.normal(larger - smaller)))


@lru_cache(maxsize=1024)
def _derivative(facts: Facts, function: Expr, variable: Expr, at: Expr | None) -> tuple[Expr, Expr]:
    """(the derivative as it is written, its normal form). Remembered: tests prove a theorem with many wrong claims."""
    derivative: Expr = diff(function, variable)
    shown: Expr = Derivative(function, variable)
    if at is not None:
        derivative, shown = derivative.xreplace({variable: at}), Subs(shown, variable, at)
    return shown, facts.normal(derivative)


@lru_cache(maxsize=4096)
def _factored(expr: Expr) -> Expr:
    return factor(cancel(together(expr)))


@lru_cache(maxsize=4096)
def _signs(expr: Expr) -> Expr:
    """Reduce the arguments of sign() and |.|, so that SymPy can read their sign off the declared symbols."""
    return expr.replace(sign, lambda x: sign(factor(cancel(x)))).replace(Abs, lambda x: Abs(factor(cancel(x))))
