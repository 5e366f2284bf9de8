"""Weights, objectives and slopes of one token's loss: DRPO, Mask-DRPO, SPO, penalties, PPO."""

from __future__ import annotations

from derivations import objectives
from derivations.formulas.divergences import Number
from derivations.numeric import evaluate
from derivations.setting import A, k, mu, pi
from derivations.theorems import drpo_coefficient, mask_drpo, penalties, ppo_mask
from derivations.theorems import spo_weight as spo

PENALTIES = objectives.PENALTIES

_DRPO_OBJECTIVE = objectives.drpo(pi[k] / mu[k], A, mu[k], objectives.delta)
_SPO_OBJECTIVE = objectives.spo(pi[k] / mu[k], A, objectives.eps)


def drpo_weight(mu_k: Number, pi_k: Number, advantage: Number, delta: Number, backend: str = "math") -> Number:
    """DRPO's weight w of one token: theorem drpo_coefficient. The coefficient of grad log pi is w r A."""
    values = {"mu": [mu_k], "pi": [pi_k], "k": 0, "A": advantage, "delta": delta}
    return evaluate(drpo_coefficient.THEOREM.claim("weight"), values, backend)


def drpo_objective(mu_k: Number, pi_k: Number, advantage: Number, delta: Number, backend: str = "math") -> Number:
    """DRPO's objective of one token (Eq. 8), to be maximised; a loss is its negative."""
    values = {"mu": [mu_k], "pi": [pi_k], "k": 0, "A": advantage, "delta": delta}
    return evaluate(_DRPO_OBJECTIVE, values, backend)


def mask_drpo_weight(mu_k: Number, pi_k: Number, advantage: Number, delta: Number, backend: str = "math") -> Number:
    """Mask-DRPO's weight of one token, |pi_k - mu_k| != delta: theorem mask_drpo."""
    values = {"mu": [mu_k], "pi": [pi_k], "k": 0, "A": advantage, "delta": delta}
    return evaluate(mask_drpo.THEOREM.claim("weight"), values, backend)


def spo_weight(mu_k: Number, pi_k: Number, advantage: Number, epsilon: Number, backend: str = "math") -> Number:
    """SPO's weight w of one token: theorem spo_weight. The coefficient of grad log pi is w r A."""
    values = {"mu": [mu_k], "pi": [pi_k], "k": 0, "A": advantage, "epsilon": epsilon}
    return evaluate(spo.THEOREM.claim("weight"), values, backend)


def spo_objective(mu_k: Number, pi_k: Number, advantage: Number, epsilon: Number, backend: str = "math") -> Number:
    """SPO's objective of one token, to be maximised."""
    values = {"mu": [mu_k], "pi": [pi_k], "k": 0, "A": advantage, "epsilon": epsilon}
    return evaluate(_SPO_OBJECTIVE, values, backend)


def penalised_slope(penalty: str, ratio: Number, advantage: Number, weight: Number, backend: str = "math") -> Number:
    """dJ/dr of r A - weight * penalty(r), r != 1 for tv: theorem penalties. Times r: the coefficient of grad log pi."""
    if penalty not in PENALTIES:
        raise ValueError(f"penalty is {penalty!r}, allowed are {', '.join(PENALTIES)}")
    return evaluate(penalties.THEOREM.claim(penalty), {"r": ratio, "A": advantage, "lambda": weight}, backend)


def ppo_slope(ratio: Number, advantage: Number, epsilon: Number, backend: str = "math") -> Number:
    """dJ/dr of PPO's clipped objective, r off the edges of the band: theorem ppo_mask."""
    return evaluate(ppo_mask.THEOREM.claim("coefficient"), {"r": ratio, "A": advantage, "epsilon": epsilon}, backend)
