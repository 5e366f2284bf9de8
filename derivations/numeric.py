"""Numbers for the certificates: random policies, divergences and finite differences written without SymPy, in mpmath.

The certificate of a theorem shares nothing with its proof except the claimed right-hand side, which is evaluated here
through `sympy.lambdify`. Lists are indexed by token id; V is their length.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from mpmath import exp, fsum, log, mp, mpf, nstr, sqrt
from sympy import Dummy, Expr, Indexed, IndexedBase, Integer, KroneckerDelta, Rational, Sum, Symbol, lambdify
from sympy.printing.pycode import SymPyPrinter

Vector = list[mpf]
Divergence = Callable[[Sequence[mpf], Sequence[mpf]], mpf]
State = TypeVar("State")
_NUMBERS: dict[str, Callable[[int], Any]] = {"mpmath": mpf, "math": float, "sympy": Integer}


class CertificateError(Exception):
    """A claimed value and a measured one differ by more than the arithmetic explains."""


@dataclass(frozen=True)
class Certificate:
    """cases: comparisons made. worst: largest |claimed - measured|, relative to max(1, |measured|)."""

    cases: int
    worst: mpf
    tolerance: mpf
    digits: int


class Comparison:
    """Counts comparisons and keeps the largest error. Use inside mpmath.mp.workdps(dps)."""

    def __init__(self, dps: int) -> None:
        self.digits = dps
        # A central difference with step h errs by about h^2 + 10^-dps / h; h = 10^(-dps/3) leaves 10^(-2 dps/3).
        self.h = mpf(10) ** (-mpf(dps) / 3)
        self.tolerance = mpf(10) ** (-(dps // 2))
        self.cases = 0
        self.worst = mpf(0)

    def slope(self, function: Callable[[mpf], mpf]) -> mpf:
        """Central finite difference of `function` at 0."""
        return (function(self.h) - function(-self.h)) / (2 * self.h)

    def bend(self, function: Callable[[mpf], mpf]) -> mpf:
        """Second central difference of `function` at 0, with twice the digits, of which it costs half."""
        with mp.workdps(2 * self.digits):
            h = mpf(10) ** (-mpf(self.digits) / 2)
            return (function(h) - 2 * function(mpf(0)) + function(-h)) / h**2

    def along(self, pair: Pair, direction: Sequence[mpf], function: Callable[[Vector], mpf]) -> mpf:
        """Slope of `function` of the policy when the pair's logits move along `direction`."""
        return self.slope(lambda h: function(moved(pair.logits, direction, h)))

    def equal(self, claimed: mpf, measured: mpf, what: str) -> None:
        error = abs(claimed - measured) / max(mpf(1), abs(measured))
        self.cases += 1
        self.worst = max(self.worst, error)
        if not error <= self.tolerance:  # a NaN must fail too
            raise CertificateError(f"{what}: claimed {nstr(claimed, 12)}, measured {nstr(measured, 12)}")

    def at_most(self, value: mpf, bound: mpf, what: str) -> None:
        self.cases += 1
        if not value <= bound + self.tolerance:
            raise CertificateError(f"{what}: {nstr(value, 12)} is not <= {nstr(bound, 12)}")

    def result(self) -> Certificate:
        return Certificate(self.cases, self.worst, self.tolerance, self.digits)


def softmax(logits: Sequence[mpf]) -> Vector:
    """exp(z_i) / sum_j exp(z_j), shifted by the maximum."""
    top = max(logits)
    weights = [exp(x - top) for x in logits]
    total = fsum(weights)
    return [w / total for w in weights]


def moved(logits: Sequence[mpf], direction: Sequence[mpf], size: mpf) -> Vector:
    """The softmax policy after logits += size * direction."""
    return softmax([x + size * d for x, d in zip(logits, direction, strict=True)])


def forward_kl(mu: Sequence[mpf], pi: Sequence[mpf]) -> mpf:
    """KL(mu || pi) in nats."""
    return fsum(p * log(p / q) for p, q in zip(mu, pi, strict=True))


def _js(mu: Sequence[mpf], pi: Sequence[mpf]) -> mpf:
    middle = [(p + q) / 2 for p, q in zip(mu, pi, strict=True)]
    return (forward_kl(mu, middle) + forward_kl(pi, middle)) / 2


#: measure -> its value, (mu, pi) lists to a number; written a second time, not taken from `measures`.
DIVERGENCES: dict[str, Divergence] = {
    "forward_kl": forward_kl,
    "reverse_kl": lambda mu, pi: forward_kl(pi, mu),
    "tv": lambda mu, pi: fsum(abs(p - q) for p, q in zip(mu, pi, strict=True)) / 2,
    "jeffreys": lambda mu, pi: forward_kl(mu, pi) + forward_kl(pi, mu),
    "js": _js,
    "hellinger2": lambda mu, pi: fsum(mu) / 2 + fsum(pi) / 2 - fsum(sqrt(p * q) for p, q in zip(mu, pi, strict=True)),
    "chi2_pearson": lambda mu, pi: fsum(q * q / p - 2 * q + p for p, q in zip(mu, pi, strict=True)),
    "chi2_neyman": lambda mu, pi: fsum(p * p / q - 2 * p + q for p, q in zip(mu, pi, strict=True)),
    "l2": lambda mu, pi: fsum((p - q) ** 2 for p, q in zip(mu, pi, strict=True)) / 2,
}


def merge_tail(policy: Sequence[mpf], m: int) -> Vector:
    """The policy on m + 1 classes: tokens 0..m-1 and the rest as one."""
    return [*policy[:m], fsum(policy[m:])]


def of_merged(divergence: Divergence, mu: Sequence[mpf], m: int) -> Callable[[Sequence[mpf]], mpf]:
    """The divergence as a function of the policy alone, with its tail as one class; mu may be merged already."""
    merged = merge_tail(mu, m)
    return lambda policy: divergence(merged, merge_tail(policy, m))


def retained(pair: Pair, m: int) -> dict[str, Any]:
    """Values of mu, pi, k, m, mu_T and pi_T when tokens 0..m-1 are retained."""
    pi = pair.pi
    masses = {"mu_T": fsum(pair.mu[m:]), "pi_T": fsum(pi[m:])}
    return {"mu": pair.mu[:m], "pi": pi[:m], "k": pair.k, "m": m, **masses}


@dataclass(frozen=True)
class Pair:
    """A rollout policy, the logits of a current policy and a sampled token."""

    mu: Vector
    logits: Vector
    k: int

    @property
    def pi(self) -> Vector:
        return softmax(self.logits)

    @property
    def step(self) -> Vector:
        """The direction e_k - pi."""
        return [(1 if token == self.k else 0) - p for token, p in enumerate(self.pi)]

    def axis(self, token: int) -> Vector:
        """The direction that raises one logit."""
        return [mpf(token == other) for other in range(len(self.logits))]


SHARP = (0.5, 2.0, 15.0, 2.0)  # widths of the logits; the third gives near-certain tokens
#: For measures that divide by a probability: a near-certain token would cost them more digits than a difference has.
GENTLE = (0.5, 2.0, 4.0, 2.0)


def random_pairs(
    seed: int, count: int, sizes: Sequence[int], first: int | None = None, widths: Sequence[float] = SHARP
) -> Iterator[Pair]:
    """`count` pairs of policies per vocabulary size: flat, peaked, near-certain and nearly equal ones in turn.

    first: the sampled token is drawn among the first this-many ids (default: among all).
    """
    rng = random.Random(seed)
    for size in sizes:
        for case in range(count):
            width = widths[case % 4]
            mu_logits = [mpf(rng.gauss(0, width)) for _ in range(size)]
            drift = 0.01 if case % 4 == 3 else 0.7 * width
            logits = [x + mpf(rng.gauss(0, drift)) for x in mu_logits]
            yield Pair(softmax(mu_logits), logits, rng.randrange(first or size))


def certificate(dps: int, states: Iterator[State], compare: Callable[[Comparison, State], None]) -> Certificate:
    """Run `compare` on every state, mostly a Pair, with `dps` digits. Raises CertificateError at the first failure.

    `states` is drawn inside, lazily, so that its numbers have these digits too.
    """
    with precision(dps):
        check = Comparison(dps)
        for state in states:
            compare(check, state)
        return check.result()


class _ExactPrinter(SymPyPrinter):
    """Rational numbers stay rational; the usual printer writes 1/2, which Python reads as a float."""

    def __init__(self) -> None:
        super().__init__({"fully_qualified_modules": False, "inline": True, "allow_unknown_functions": True})

    def _print_Rational(self, expr: Expr) -> str:
        return f"Rational({expr.p}, {expr.q})"

    _print_Half = _print_Rational


@lru_cache(maxsize=256)
def _compiled(expr: Expr, backend: str) -> tuple[Callable[..., Any], tuple[str, ...]]:
    # An integer serves as index or limit and as a number; the latter must not become a float through 1 / n.
    indexed = {e: Dummy() for e in expr.atoms(Sum, Indexed, KroneckerDelta)}
    body = expr.xreplace(indexed)
    numbers = {s: Symbol(f"{s.name}_number") for s in body.free_symbols if s.is_integer and isinstance(s, Symbol)}
    numbers = {s: v for s, v in numbers.items() if s not in indexed.values()}
    expr = body.xreplace(numbers).xreplace({v: e for e, v in indexed.items()})
    arguments: dict[str, Expr] = {s.name: s for s in expr.free_symbols if isinstance(s, Symbol)}
    for entry in expr.atoms(Indexed):
        arguments[str(entry.base.label)] = IndexedBase(entry.base.label)
    ordered = tuple(sorted(arguments))
    options: dict[str, Any] = {"modules": backend}
    if backend == "sympy":
        options = {"modules": [{"Rational": Rational}, "sympy"], "printer": _ExactPrinter}
    return lambdify([arguments[name] for name in ordered], expr, **options), ordered


def evaluate(expr: Expr, values: Mapping[str, Any], backend: str = "mpmath") -> Any:
    """Value of a claim: tables (mu, pi) as lists over tokens, everything else (n, m, k, delta, ...) as numbers.

    backend: "mpmath" for its current precision, "math" for Python floats, "sympy" for exact numbers. Values that the
    expression does not mention are ignored; TypeError names those that it needs and that are missing.
    """
    if backend not in _NUMBERS:
        raise ValueError(f"backend is {backend!r}, allowed are {', '.join(_NUMBERS)}")
    function, needed = _compiled(expr, backend)
    number = _NUMBERS[backend]
    values = {**values, **{f"{name}_number": number(v) for name, v in values.items() if isinstance(v, int)}}
    missing = [name for name in needed if name not in values]
    if missing:
        raise TypeError(f"the formula needs {', '.join(needed)}; missing: {', '.join(missing)}")
    return function(*(values[name] for name in needed))


def precision(dps: int) -> Any:
    """Context in which mpmath works with `dps` decimal digits. Raises ValueError below 15."""
    if dps < 15:
        raise ValueError(f"dps is {dps}, allowed are 15 and above: below, finite differences say nothing")
    return mp.workdps(dps)
