"""Two-outcome forms: the sampled token against everything else, from its two log-probs alone.

For all of them the sampled ratio tells the direction exactly: moving pi_k away from mu_k raises the measure, and a
step on token k always raises pi_k ([N], proved in `derivations`); a predictive direction has nothing to add.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from methods.measures.algebraic import CHI2_NEYMAN, CHI2_PEARSON, HELLINGER2, L2
from methods.measures.logarithmic import JS
from methods.measures.measure import TINY, Measure
from methods.signals import probability


def binary_tv(logp_mu: Tensor, logp_pi: Tensor) -> Tensor:
    """|mu_k - pi_k| of the sampled token, shape of the inputs (DPPO paper, Eq. 13 [F])."""
    return (probability(logp_mu) - probability(logp_pi)).abs()


def binary_kl(logp_mu: Tensor, logp_pi: Tensor) -> Tensor:
    """KL of Bernoulli(mu_k) against Bernoulli(pi_k), in nats, shape of the inputs (DPPO paper, Eq. 14 [F]).

    Accurate for rare and for near-certain tokens; inf where pi_k = 0 < mu_k, finite everywhere else.
    """
    mu = probability(logp_mu)
    log_mu, log_pi = _log(logp_mu), _log(logp_pi)
    rest_mu, rest_pi = _log_rest(log_mu), _log_rest(log_pi)
    token = torch.where(mu > 0, mu * (log_mu - log_pi), 0.0)
    return (token + rest_mu.exp() * (rest_mu - rest_pi)).clamp(min=0.0)


def binary_value(measure: Measure, logp_mu: Tensor, logp_pi: Tensor) -> Tensor:
    """Any measure on the two outcomes "sampled token" and "another one", shape of the inputs [N].

    1 - p is exact; a logarithm of it is not (use `binary_kl` where divergences of 1e-7 matter).
    """
    return measure.value(_outcomes(logp_mu), _outcomes(logp_pi))


def _outcomes(logp: Tensor) -> Tensor:
    return torch.stack([probability(logp), -torch.expm1(_log(logp))], -1)


def _log(logp: Tensor) -> Tensor:
    return logp.to(torch.promote_types(logp.dtype, torch.float32)).clamp(max=0.0)


def _log_rest(logp: Tensor) -> Tensor:
    """log(1 - p): 1 - p is exact as -expm1(log p), its logarithm as log1p(-p) where p is small.

    A rest that rounds to zero is floored like a tail: log-probs of near-certain tokens are often exactly 0.
    """
    rest = (-torch.expm1(logp)).clamp(min=TINY)
    return torch.where(logp < -math.log(2.0), torch.log1p(-logp.exp()), rest.log())


def _two_outcomes(measure: Measure) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda logp_mu, logp_pi: binary_value(measure, logp_mu, logp_pi)


# name -> (log mu_k, log pi_k) to the measure. The half squared l2 distance is (mu_k - pi_k)^2 here.
BINARY_MEASURES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "binary_tv": binary_tv,
    "binary_kl": binary_kl,
    "binary_reverse_kl": lambda logp_mu, logp_pi: binary_kl(logp_pi, logp_mu),
    "binary_jeffreys": lambda logp_mu, logp_pi: binary_kl(logp_mu, logp_pi) + binary_kl(logp_pi, logp_mu),
    **{f"binary_{measure.name}": _two_outcomes(measure) for measure in (JS, HELLINGER2, CHI2_PEARSON, CHI2_NEYMAN, L2)},
}
