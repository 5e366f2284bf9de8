"""What a softmax step does to a user's divergence: slope, local and global term and its threshold, tail form.

Proved for every vocabulary size by differentiating the divergence along the step (Proof), as the theorems do.
The general form is own derivation [N]: with g_i = dD/d pi_i and gbar = sum_i pi_i g_i, the step on token k changes D by
L_k - sum_i pi_i L_i per unit of c, L_i = pi_i (g_i - gbar).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from sympy import Abs, Expr, Integer, Rational, Symbol, diff, factor, sign, solve

from derivations import setting, tails
from derivations.new.budget import Budget
from derivations.new.divergence import FINEST_ROOT, Divergence, beyond_algebra, length, p, placed, q, simple, summed
from derivations.proof import Proof, ProofError
from derivations.setting import FULL, RETAINED, Table, c, i, j, k, pi
from derivations.sums import Facts, SumError, apart_from_exponentials, total
from derivations.tails import S2, c2, mu_T, pi_T

r = Symbol("r", positive=True)
G = Symbol("G", real=True)  # stands for gbar while an equation is solved
# Above this many operations SymPy's solve may take minutes, and a reader learns nothing from the result.
SOLVABLE_OPS = 40
OUT_OF_TIME = "out of time"


def mu(token: Expr) -> Expr:
    return setting.mu[token]


def current(token: Expr) -> Expr:
    return pi[token]


@dataclass(frozen=True)
class Threshold:
    """Where the local term changes sign: at r = value, in terms of G = gbar and mu_k. `why` for the reader."""

    value: Expr
    why: str

    @property
    def is_ratio(self) -> bool:
        return self.value == 1


@dataclass(frozen=True)
class Study:
    """Formulas in the notation of `derivations.setting` and `derivations.tails`.

    full: D. reduced: D on S and one tail class. slope: g_i. mean: gbar. local: L_k. global_: -sum pi L. tail: slope of
    `reduced` along the step, given c2. proved: names of the formulas that SymPy showed for every n. refused: those
    that it did not, with its reason (numbers still decide about them).
    """

    divergence: Divergence
    full: Expr
    reduced: Expr
    slope: Expr
    mean: Expr
    local: Expr
    global_: Expr
    tail: Expr
    threshold: Threshold | None
    proved: tuple[str, ...] = ()
    refused: dict[str, str] = field(default_factory=dict)


def study(given: Divergence) -> Study:
    """Derive everything. The formulas are claims until `certify` has compared them with finite differences."""
    facts, budget = setting.FACTS, given.budget
    full = given.over(summed(mu, current, FULL))
    slope = _slope(full_sums(given), given)
    mean = shortest(budget, facts, total(pi[j] * slope(j), j, FULL))
    local = shortest(budget, facts, pi[k] * (slope(k) - mean), factor)
    each = shortest(budget, facts, pi[i] * (slope(i) - mean))
    global_ = shortest(budget, facts, -total(pi[i] * each, i, FULL))
    reduced = given.over(summed(mu, current, RETAINED), in_tail)
    tail = min((shortest(budget, tails.FACTS, form) for form in _tail_forms(given)), key=length)
    proved, refused = _prove(given, local + global_, tail)
    threshold = budget.tried("the threshold", lambda: _threshold(given, mean), None)
    return Study(given, full, reduced, slope(i), mean, local, global_, tail, threshold, tuple(proved), refused)


def in_tail(term: Expr) -> Expr:
    """f_j of the tail class."""
    return term.xreplace({p: mu_T, q: pi_T})


def full_sums(given: Divergence) -> dict[Symbol, Expr]:
    return {s: summed(mu, current, FULL)(f) for s, f in zip(given.sums, given.terms, strict=True)}


def reduced_sums(given: Divergence) -> dict[Symbol, Expr]:
    return {s: summed(mu, current, RETAINED)(f) + in_tail(f) for s, f in zip(given.sums, given.terms, strict=True)}


def _slope(sums: dict[Symbol, Expr], given: Divergence, raw: bool = False) -> Table:
    """g of a token, dF/d(sums) taken at `sums`. raw: as differentiated, else simplified term by term."""
    slopes = tuple(diff(term, q) for term in given.terms) if raw else given.slopes()
    outer = [f.xreplace(sums) for f in given.outer_slopes()]
    if not raw and not given.bends:  # one expression, simplified as a whole
        whole = given.shorter(sum((f * g for f, g in zip(outer, slopes, strict=True)), Integer(0)))
        return lambda token: placed(whole, current, token, mu)
    return lambda token: sum(
        (f * placed(g, current, token, mu) for f, g in zip(outer, slopes, strict=True)), Integer(0)
    )


def shortest(budget: Budget, facts: Facts, expr: Expr, also: Callable[[Expr], Expr] | None = None) -> Expr:
    """The shortest of some equal forms, so that a reader sees pi_k - mu_k rather than what it came from."""
    if beyond_algebra(expr):
        return expr
    normal = budget.tried("a simple form", lambda: signs_one_way(facts.normal(expr)), expr)
    forms = [expr, normal]
    forms += [budget.tried("a simple form", lambda: apart_from_exponentials(also, normal), normal)] if also else []
    return min(forms, key=length)


def signs_one_way(expr: Expr) -> Expr:
    """|x| as x sign(x) and sign(-x) as -sign(x): SymPy does not see that these are equal."""
    return expr.replace(Abs, lambda x: x * _sign(x)).replace(sign, _sign)


def _sign(x: Expr) -> Expr:
    return -sign(-x) if x.could_extract_minus_sign() else sign(x)


def _form(given: Divergence, raw: bool) -> Expr:
    """L_k - sum_i pi_i L_i over the whole vocabulary."""
    slope = _slope(full_sums(given), given, raw)
    mean = total(pi[j] * slope(j), j, FULL)
    return pi[k] * (slope(k) - mean) - total(pi[i] ** 2 * (slope(i) - mean), i, FULL)


def _tail_forms(given: Divergence, raw: bool = False) -> tuple[Expr, Expr]:
    """L_k - sum_S pi_i L_i - (c2 / pi_T) L_T on S and one tail class; and the same collected by gbar."""
    sums = reduced_sums(given)
    slope = _slope(sums, given, raw)
    slopes = tuple(diff(term, q) for term in given.terms) if raw else given.slopes()
    outer = [f.xreplace(sums) for f in given.outer_slopes()]
    in_class = sum((f * in_tail(g) for f, g in zip(outer, slopes, strict=True)), Integer(0))
    mean = shortest(given.budget, tails.FACTS, total(pi[i] * slope(i), i, RETAINED) + pi_T * in_class)
    kept = total(pi[i] ** 2 * (slope(i) - mean), i, RETAINED)
    return (
        pi[k] * (slope(k) - mean) - kept - c2 * (in_class - mean),
        pi[k] * slope(k) - total(pi[i] ** 2 * slope(i), i, RETAINED) - c2 * in_class - mean * (pi[k] - S2),
    )


def _prove(given: Divergence, direction: Expr, tail: Expr) -> tuple[list[str], dict[str, str]]:
    """Three steps each: the derivative is the form in g; g may be simplified; the form is what is shown."""
    if any(map(beyond_algebra, given.terms)) or beyond_algebra(given.outer):
        reason = f"an exponent's denominator is above {FINEST_ROOT}"
        return [], {"local + global": reason, "tail form": reason}
    exact, tail_mass = tails.exact_tail()
    whole = given.over(summed(mu, setting.along(setting.step), FULL))
    parts = given.over(summed(mu, exact, RETAINED), lambda term: term.xreplace({p: mu_T, q: tail_mass}))
    proved, refused = [], {}
    for name, facts, moving, raw, form, claim, theorem in (
        ("local + global", setting.FACTS, whole, _form(given, True), _form(given, False), direction, "any_divergence"),
        ("tail form", tails.FACTS, parts, _tail_forms(given, True)[0], _tail_forms(given)[0], tail, "any_reduced"),
    ):
        proof = Proof(facts)
        steps = partial(_derivative_steps, proof, moving, signs_one_way(raw))
        steps_in_g = partial(_form_steps, given, proof, signs_one_way(form), signs_one_way(claim))
        try:
            # Sums of partial fractions may be equal unseen. The theorem has this step for any sum over tokens.
            direct = given.budget.tried(name, steps, None)
            if not direct and given.bends:
                raise ProofError("the derivative was not shown to be the form in g")
            if not given.budget.tried(name, steps_in_g, None):
                raise ProofError(OUT_OF_TIME)
        except (ProofError, SumError) as error:
            refused[name] = str(error).splitlines()[0]
        else:
            proved.append(name if direct else f"{name} (by theorem {theorem})")
    return proved, refused


def _derivative_steps(proof: Proof, moving: Expr, form: Expr) -> bool:
    try:
        slope = signs_one_way(proof.differentiate("differentiate along the step", moving, c, Integer(0)))
        proof.equal("the derivative is the form in g", proof.facts.normal(slope), form)
    except (ProofError, SumError):
        return False
    return True


def _form_steps(given: Divergence, proof: Proof, form: Expr, claim: Expr) -> bool:
    for term, short in zip(given.terms, given.slopes(), strict=True):
        proof.equal("g in simple form", signs_one_way(diff(term, q)), signs_one_way(short))
    proof.equal("the form as shown", form, claim)
    return True


def _threshold(given: Divergence, mean: Expr) -> Threshold | None:
    """r* with sign(L_k) = sign(r - r*), where it can be had in closed form; numbers check it afterwards."""
    if given.bends:
        return None
    slope = sum((f * g for f, g in zip(given.outer_slopes(), given.slopes(), strict=True)), Integer(0))
    slope = signs_one_way(simple(slope))
    if (signs := slope.atoms(sign)) == {sign(p - q)} or signs == {sign(q - p)}:
        height = slope.coeff(signs.pop())
        if not (slope - height * sign(p - q)).free_symbols and not (height.free_symbols):
            return Threshold(
                Integer(1), "g takes two values, by sign(r - 1), and gbar is an average of them, so between the two"
            )
    ratio = simple(slope.xreplace({q: r * p}))
    if ratio.has(sign) or ratio.count_ops() > SOLVABLE_OPS or not ratio.has(r):
        return None
    plain = Symbol("x")  # without the assumption r > 0, which would make solve() drop roots it cannot place
    try:
        roots = solve(ratio.xreplace({r: plain}) - G, plain, check=False)
    except (NotImplementedError, RecursionError, ValueError):
        return None
    roots = [root for root in roots if _inverts(root, ratio)]
    if not roots:
        return None
    value = min(map(simple, roots), key=length)
    if not mean.has(pi):  # gbar is a number
        value = simple(value.xreplace({G: mean}))
    return Threshold(value, "solved g = gbar for r")


def _inverts(root: Expr, ratio: Expr) -> bool:
    """Whether `root` is the branch with root(G = ratio(r)) = r, tried at three r and an arbitrary mu_k."""
    for value in (Rational(2, 5), Rational(9, 10), Rational(17, 10)):
        known = {p: Rational(3, 10)}
        height = ratio.xreplace({**known, r: value})
        if not abs(root.xreplace({**known, G: height}).evalf(30) - value) < Rational(1, 10**20):
            return False
    return True
