"""Per-token objectives as SymPy expressions of the importance ratio r = pi_k / mu_k; all are to be maximised."""

from __future__ import annotations

from sympy import Abs, Expr, Integer, Max, Min, Symbol, log

r = Symbol("r", positive=True)
delta = Symbol("delta", positive=True)
eps = Symbol("epsilon", positive=True)
lam = Symbol("lambda", positive=True)


def drpo(ratio: Expr, advantage: Expr, mu_k: Expr, radius: Expr) -> Expr:
    """r A - |A| mu_k (r - 1)^2 / (2 delta): arXiv 2606.09821, Eq. 8 [F], one token, to be maximised."""
    return ratio * advantage - Abs(advantage) * mu_k * (ratio - 1) ** 2 / (2 * radius)


def mask_drpo(ratio: Expr, advantage: Expr, mu_k: Expr, radius: Expr, outside: bool) -> Expr:
    """DRPO where |pi_k - mu_k| > delta, unregularised elsewhere: arXiv 2606.09821, Fig. 11 [S]."""
    return drpo(ratio, advantage, mu_k, radius) if outside else ratio * advantage


def drpo_regulariser(ratio: Expr, advantage: Expr, mu_k: Expr, radius: Expr) -> Expr:
    """What DRPO takes from r A."""
    return ratio * advantage - drpo(ratio, advantage, mu_k, radius)


def spo_regulariser(ratio: Expr, advantage: Expr, radius: Expr) -> Expr:
    """What SPO takes from r A."""
    return ratio * advantage - spo(ratio, advantage, radius)


def spo(ratio: Expr, advantage: Expr, radius: Expr) -> Expr:
    """r A - |A| (r - 1)^2 / (2 eps): arXiv 2606.09821, Eq. 5 [F], of arXiv 2401.16025."""
    return ratio * advantage - Abs(advantage) * (ratio - 1) ** 2 / (2 * radius)


def k3(ratio: Expr) -> Expr:
    """r - 1 - log r, whose mean under mu is KL(mu || pi)."""
    return ratio - 1 - log(ratio)


def reverse_kl(ratio: Expr) -> Expr:
    """r log r, whose mean under mu is KL(pi || mu)."""
    return ratio * log(ratio)


def forward_kl(ratio: Expr) -> Expr:
    """-log r, whose mean under mu is KL(mu || pi)."""
    return -log(ratio)


def tv(ratio: Expr) -> Expr:
    """|r - 1| / 2, whose mean under mu is TV."""
    return Abs(ratio - 1) / 2


#: penalties of arXiv 2606.09821, Appendix C [I]: their exact form there is not known
PENALTIES = ("k3", "reverse_kl", "forward_kl", "tv")


def penalty(name: str, ratio: Expr) -> Expr:
    """The penalty of this name, looked up when it is used."""
    if name not in PENALTIES:
        raise ValueError(f"penalty is {name!r}, allowed are {', '.join(PENALTIES)}")
    found: Expr = globals()[name](ratio)
    return found


def penalised(name: str, ratio: Expr, advantage: Expr, weight: Expr) -> Expr:
    """r A - lambda penalty(r)."""
    return ratio * advantage - weight * penalty(name, ratio)


def clipped(ratio: Expr, advantage: Expr, radius: Expr) -> Expr:
    """min(r A, clip(r, 1 - eps, 1 + eps) A): PPO, arXiv 2602.04879, Eq. 10 [F]."""
    inside = Max(Integer(1) - radius, Min(Integer(1) + radius, ratio))
    return Min(ratio * advantage, inside * advantage)
