"""The setting of every theorem: a softmax policy and one policy-gradient step on one sampled token.

Tokens carry the ids 0..n-1, as in code; n is a symbol, so a statement holds for every vocabulary size. The retained
support S is 0..m-1 and the tail T is m..n-1: every quantity here is a sum over tokens, so numbering the tokens this
way loses nothing.

mu  rollout policy, fixed, mu_i > 0, sum_i mu_i = 1
pi  current policy at the state, pi_i > 0, sum_i pi_i = 1; the softmax of the logits z_i = log(pi_i) + a for any a
k   sampled token (retained: it always belongs to S)
c   step size; the step moves the logits by c (e_k - pi), c = eta * A * r, r = pi_k / mu_k
"""

from __future__ import annotations

from collections.abc import Callable

from sympy import Expr, Indexed, IndexedBase, Integer, KroneckerDelta, Symbol, exp, log

from derivations.sums import Facts, Range, total

n = Symbol("n", integer=True, positive=True)
m = Symbol("m", integer=True, positive=True)
i, j, k = (Symbol(name, integer=True, nonnegative=True) for name in "ijk")
q = Symbol("q", integer=True, nonnegative=True)  # bound index of the softmax denominator

c = Symbol("c", real=True)
a = Symbol("a", real=True)
A = Symbol("A", real=True)

z = IndexedBase("z", real=True)
u = IndexedBase("u", real=True)
mu = IndexedBase("mu", positive=True)
pi = IndexedBase("pi", positive=True)

FULL: Range = (Integer(0), n - 1)
RETAINED: Range = (Integer(0), m - 1)
TAIL: Range = (m, n - 1)

Table = Callable[[Expr], Expr]  # token id -> value, the symbolic counterpart of a vector over the vocabulary

#: What holds in the whole vocabulary. `i` and `j` are the free tokens in which a statement may be differentiated.
FACTS = Facts(
    inside={token: (FULL,) for token in (i, j, k)},
    known=((total(mu[i], i, FULL), Integer(1)), (total(pi[i], i, FULL), Integer(1))),
)
ASSUMPTIONS = (
    r"$\mu_i > 0$, $\pi_i > 0$, $\sum_i \mu_i = \sum_i \pi_i = 1$, $0 \le k < n$, any $n \ge 1$",
    r"$\mu$ is constant; only the logits of $\pi$ move",
)


def softmax(logits: Table) -> Table:
    """softmax(z)_i = exp(z_i) / sum_q exp(z_q) over the whole vocabulary."""
    normaliser = total(exp(logits(q)), q, FULL)
    return lambda token: exp(logits(token)) / normaliser


def logits_of_pi(token: Expr) -> Expr:
    """Logits whose softmax is pi; `a` is arbitrary because a softmax does not see a common shift."""
    return log(pi[token]) + a


def at_pi(expr: Expr) -> Expr:
    """Evaluate an expression in the free logits z at the current policy."""
    return expr.replace(lambda e: isinstance(e, Indexed) and e.base == z, lambda e: logits_of_pi(e.indices[0]))


def step(token: Expr) -> Expr:
    """Component of the step direction e_k - pi (theorem `softmax_step` derives it)."""
    return KroneckerDelta(token, k) - pi[token]


def arbitrary(token: Expr) -> Expr:
    """Component of an arbitrary direction u in logit space."""
    return u[token]


def along(direction: Table) -> Table:
    """The policy after a move of size c: softmax(log(pi) + a + c * direction)."""
    return softmax(lambda token: logits_of_pi(token) + c * direction(token))


def with_direction(expr: Expr, direction: Table) -> Expr:
    """Put a concrete direction in the place of the arbitrary u."""
    return expr.replace(lambda e: isinstance(e, Indexed) and e.base == u, lambda e: direction(e.indices[0]))


#: The two parts of the step: (name, how a reader calls the direction, the direction).
PARTS: tuple[tuple[str, str, Table], ...] = (
    ("local", "$u = e_k$", lambda token: KroneckerDelta(token, k)),
    ("global", r"$u = -\pi$", lambda token: -pi[token]),
)
