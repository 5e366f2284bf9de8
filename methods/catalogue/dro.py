"""DRO: no importance weight; a quadratic penalty on the log-ratio holds the policy near the sampler.

    objective  A log pi - (beta / 2) (log(pi / mu))^2
    g = A - beta · log r

The penalty has no |A|: a token with A = 0 is still pulled back to mu.
Source: direct reward optimisation (arXiv 2405.19107) and Kimi k1.5 (arXiv 2501.12599) in the token-level form that
verl's `dro` and Tinker share [S]; beta = 0.05 is the example value of Tinker's documentation [S], since neither gives a
default. Both papers centre the reward by a soft value estimate, which is the advantage's business, not the loss's.
Shapes: signals [B, T] to g [B, T]. Detached: all, which gives the same gradient as differentiating the objective.
Public code: verl refuses to run it without a dro_beta and does not limit the log-ratio (here 20).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from methods import MethodConfig, Signals, check_positive, log_ratio, register


@dataclass(frozen=True)
class Config(MethodConfig):
    beta: float = 0.05
    """Strength of the penalty."""

    def __post_init__(self) -> None:
        check_positive("beta", self.beta)


@register("dro", title="DRO", source="arXiv 2405.19107; 2501.12599", mark="S", config=Config)
def coefficient(signals: Signals, config: Config) -> Tensor:
    """g, [B, T]."""
    return signals.advantages - config.beta * log_ratio(signals.logp_pi, signals.logp_mu)
