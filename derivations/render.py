"""Formulas for readers: one-line Unicode text and LaTeX. Sums show the set they run over: all tokens, S or T."""

from __future__ import annotations

import re

from sympy import Expr
from sympy.printing.latex import LatexPrinter
from sympy.printing.str import StrPrinter

from derivations.setting import RETAINED, TAIL

_GREEK = {
    "mu": "μ", "pi": "π", "delta": "δ", "eta": "η", "epsilon": "ε", "gamma": "γ", "lambda": "λ", "rho": "ρ",
    "sigma": "σ", "tau": "τ", "xi": "ξ",
}  # fmt: skip
_PLAIN = {
    r"\mathrm{KL}": "KL", r"\operatorname{sign}": "sign", r"\|": "‖", r"\mu": "μ", r"\pi": "π", r"\delta": "δ",
    r"\eta": "η", r"\partial": "∂", r"\sum": "Σ", r"\le": "≤", r"\ge": "≥", r"\in": "∈", r"\log": "log ",
    r"\cdot": "·", r"\tilde{D}": "D~", r"\sup": "sup", r"\inf": "inf", r"\neq": "≠", r"\to": "→", r"\nabla": "∇",
    r"\epsilon": "ε", r"\gamma": "γ", r"\lambda": "λ", r"\rho": "ρ", r"\tau": "τ", r"\xi": "ξ", r"\Delta": "Δ",
    r"\min": "min", r"\max": "max", r"\prod": "Π", r"\mid": "|", r"\tilde{g}": "g~", r"\dot{D}": "Ḋ",
    r"\dot": "", r"\,": " ", r"\ ": " ", r"\text": "",
}  # fmt: skip


def plain(source: str) -> str:
    """English with LaTeX mathematics -> Unicode text, for the small vocabulary used in statements."""
    for macro in sorted(_PLAIN, key=len, reverse=True):
        source = re.sub(re.escape(macro) + r"(?![A-Za-z])" if macro[1].isalpha() else re.escape(macro),
                        _PLAIN[macro], source)  # fmt: skip
    source = source.replace("$", "").replace("{", "").replace("}", "")
    return re.sub(r"  +", " ", source).replace("∂ ", "∂").strip()


def _over(limits: tuple[Expr, ...]) -> str:
    """Name of the set a bound index runs over: "" for the whole vocabulary, else S or T."""
    return {RETAINED: "S", TAIL: "T"}.get(limits[1:], "")


def _positive_first(terms: list[Expr]) -> list[Expr]:
    """n - m rather than -m + n."""
    lead = next((place for place, term in enumerate(terms) if not term.could_extract_minus_sign()), 0)
    return [terms[lead], *terms[:lead], *terms[lead + 1 :]]


class _Text(StrPrinter):
    printmethod = "_tether_text"  # else Indexed prints itself

    def _as_ordered_terms(self, expr: Expr, order: str | None = None) -> list[Expr]:
        return _positive_first(super()._as_ordered_terms(expr, order))

    def _print_Symbol(self, expr: Expr) -> str:
        head, _, foot = expr.name.partition("_")
        return _GREEK.get(head, head) + (f"_{foot}" if foot else "")

    def _print_Indexed(self, expr: Expr) -> str:
        return f"{_GREEK.get(str(expr.base), str(expr.base))}_{self._print(expr.indices[0])}"

    def _print_KroneckerDelta(self, expr: Expr) -> str:
        return f"[{self._print(expr.args[0])}={self._print(expr.args[1])}]"

    def _print_Abs(self, expr: Expr) -> str:
        return f"|{self._print(expr.args[0])}|"

    def _print_Sum(self, expr: Expr) -> str:
        index, over = self._print(expr.limits[0][0]), _over(tuple(expr.limits[0]))
        return f"Σ_{index}{'∈' + over if over else ''}({self._print(expr.function)})"

    def _print_Derivative(self, expr: Expr) -> str:
        return f"d/d{self._print(expr.variables[0])} {{ {self._print(expr.expr)} }}"

    def _print_Subs(self, expr: Expr) -> str:
        where = f"{self._print(expr.variables[0])}={self._print(expr.point[0])}"
        return f"{self._print(expr.expr)} at {where}"


class _Latex(LatexPrinter):
    def _as_ordered_terms(self, expr: Expr, order: str | None = None) -> list[Expr]:
        return _positive_first(super()._as_ordered_terms(expr, order))

    def _print_Indexed(self, expr: Expr, exp: str | None = None) -> str:
        entry = rf"{self._print(expr.base.label)}_{{{self._print(expr.indices[0])}}}"
        return entry if exp is None else f"{entry}^{{{exp}}}"

    def _print_KroneckerDelta(self, expr: Expr, exp: str | None = None) -> str:
        return rf"\mathbf{{1}}[{self._print(expr.args[0])}={self._print(expr.args[1])}]"

    def _print_Sum(self, expr: Expr) -> str:
        index, over = self._print(expr.limits[0][0]), _over(tuple(expr.limits[0]))
        body = self._print(expr.function)
        body = rf"\left({body}\right)" if expr.function.is_Add else body
        return rf"\sum_{{{index}{chr(92) + 'in ' + over if over else ''}}} {body}"


def text(expr: Expr) -> str:
    """One line of Unicode."""
    return _Text().doprint(expr).replace("**", "^")


def latex(expr: Expr) -> str:
    """LaTeX for mathematics mode."""
    return _Latex({"mul_symbol": None}).doprint(expr)
