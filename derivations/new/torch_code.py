"""A user's divergence as source text: a `Measure` to paste into methods/measures. Text only; torch is not imported."""

from __future__ import annotations

import re

from sympy import Expr, Float, Integer, Symbol
from sympy.printing.pycode import PythonCodePrinter

from derivations.new.divergence import Divergence, p, q

NAME = re.compile(r"[a-z][a-z0-9_]*")
_NAMES = {p: Symbol("mu", positive=True), q: Symbol("pi", positive=True)}
_FUNCTIONS = {"log": "torch.log", "exp": "torch.exp", "Abs": "torch.abs", "sign": "torch.sign"}

_TEMPLATE = '''"""{source}, made by `python -m derivations --new`.  Source: own divergence [N]."""

from __future__ import annotations

import torch
from torch import Tensor

from methods.measures import Measure

TINY = torch.finfo(torch.float32).tiny


def _value(mu: Tensor, pi: Tensor) -> Tensor:
    # 0 log 0 = 0; a zero below a fraction is huge, not undefined. In float64, as float32 has no square of TINY.
    dtype, mu, pi = pi.dtype, mu.double().clamp(min=TINY), pi.double().clamp(min=TINY)
{value}


def _logit_gradient(mu: Tensor, pi: Tensor) -> Tensor:
    dtype, mu, pi = pi.dtype, mu.double().clamp(min=TINY), pi.double().clamp(min=TINY)
{gradient}
    return (weighted - pi * weighted.sum(-1, keepdim=True)).to(dtype)


{constant} = Measure("{name}", "{source}", _value, _logit_gradient{divides})
'''


class _Torch(PythonCodePrinter):
    def _print_Function(self, expr: Expr) -> str:
        return f"{_FUNCTIONS[type(expr).__name__]}({self._print(expr.args[0])})"

    _print_log = _print_exp = _print_Abs = _print_sign = _print_Function

    def _print_Pow(self, expr: Expr, rational: bool = False) -> str:
        base, exponent = expr.args
        if exponent in (Integer(1) / 2, -Integer(1) / 2):
            root = f"torch.sqrt({self._print(base)})"
            return root if exponent > 0 else f"1/{root}"
        return super()._print_Pow(expr)


def _code(expr: Expr) -> str:
    return _Torch({"fully_qualified_modules": False}).doprint(expr.xreplace(_NAMES))


def torch_code(given: Divergence, name: str = "my_measure") -> str:
    """Source of a module that defines the Measure `name`, in upper case. Shapes [..., n] as in methods.measures.

    Raises ValueError for a name that is no identifier.
    """
    if not NAME.fullmatch(name):
        raise ValueError(f"name is {name!r}, allowed are lower-case letters, digits and underscores")
    sums = [f"    {s} = {_summed(f)}" for s, f in zip(given.sums, given.terms, strict=True)]
    outer = _code(given.outer)
    value = [*sums, f"    return {outer if outer == 's_1' else f'({outer})'}.squeeze(-1).to(dtype)"]
    weighted = [given.shorter(q * g) for g in given.slopes()]
    if given.bends:
        parts = " + ".join(f"({_code(f)}) * ({_code(w)})" for f, w in zip(given.outer_slopes(), weighted, strict=True))
        gradient = [*sums, f"    weighted = {parts}  # pi_i dD/dpi_i"]
    else:
        whole = sum((f * g for f, g in zip(given.outer_slopes(), given.slopes(), strict=True)), Integer(0))
        gradient = [f"    weighted = {_code(given.shorter(q * whole))}  # pi_i dD/dpi_i"]
    return _TEMPLATE.format(
        source=given.source,
        value="\n".join(value),
        gradient="\n".join(gradient),
        constant=name.upper(),
        name=name,
        divides=", divides=True" if any(map(_divides, given.terms)) else "",
    )


def _divides(term: Expr) -> bool:
    """Whether a mass near zero makes the term large, more than a logarithm would (what Measure.divides asks)."""
    near, usual = Float("1e-12"), Float("0.3")
    return any(abs(term.xreplace(values)) > 1000 for values in ({p: near, q: usual}, {p: usual, q: near}))


def _summed(term: Expr) -> str:
    constant = "" if term.free_symbols else " * torch.ones_like(mu)"
    return f"({_code(term)}{constant}).sum(-1, keepdim=True)"
