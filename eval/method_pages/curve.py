"""The coefficient g of one token against its probability under pi, for several probabilities under mu.

The policies of these curves live on five tokens. The sampled token has probability mu and pi; the other four share
the rest as 0.6 : 0.25 : 0.1 : 0.05 under both policies, so that they move proportionally. The support of a top-K method
is the sampled token and the first two of those; the last two are its tail. Every point is a response of one token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from dataclasses import replace as changed
from typing import Any

import torch
from torch import Tensor

from methods.config import MethodConfig
from methods.registry import Method, Needs
from methods.signals import Scope, Signals, Support, sanitise

MUS = (0.01, 0.1, 0.3, 0.6, 0.9)
SHARES = (0.6, 0.25, 0.1, 0.05)
CANDIDATES = 3
# logit(pi) from -7 to 7: pi from 0.0009 to 0.9991.
LOGITS = tuple(0.05 * step for step in range(-140, 141))


@dataclass(frozen=True)
class Curve:
    """g against pi for one mu and one sign of the advantage; `start` is g at pi = mu."""

    mu: float
    advantage: float
    pi: tuple[float, ...]
    g: tuple[float, ...]
    start: float


def curves(method: Method, config: MethodConfig, mus: Sequence[float] = MUS) -> list[Curve]:
    """A curve for A = +1 and then A = -1 for each mu. Nothing here is random: `uniforms` are 0.5."""
    grid = torch.tensor(LOGITS, dtype=torch.float64).sigmoid()
    found = []
    for advantage in (1.0, -1.0):
        for mu in mus:
            pi = torch.cat([grid, torch.tensor([mu], dtype=torch.float64)])
            g = _coefficient(method, config, sanitise(_signals(torch.full_like(pi, mu), pi, advantage))).tolist()
            found.append(Curve(mu, advantage, tuple(grid.tolist()), tuple(g[:-1]), g[-1]))
    return found


def _coefficient(method: Method, config: MethodConfig, signals: Signals) -> Tensor:
    """g of each row, [N]; one row at a time where a method compares the tokens of a mini-batch."""
    if Needs.MINI_BATCH not in method.requires(config):
        return method.coefficient(signals, config).squeeze(-1)
    rows = range(len(signals.logp_pi))
    return torch.cat([method.coefficient(_row(signals, n), config).flatten() for n in rows])


def _row(signals: Signals, n: int) -> Signals:
    def cut(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value[n : n + 1]
        if isinstance(value, Support):
            return Support(**{field.name: cut(getattr(value, field.name)) for field in fields(Support)})
        return tuple(map(cut, value)) if isinstance(value, tuple) else value

    return changed(signals, **{field.name: cut(getattr(signals, field.name)) for field in fields(signals)})


def _signals(mu: Tensor, pi: Tensor, advantage: float) -> Signals:
    """Signals of N responses of one token, [N, 1], with everything that a method may need."""
    shares = torch.tensor(SHARES, dtype=torch.float64)
    full_mu, full_pi = (
        torch.cat([p.unsqueeze(-1), (1 - p).unsqueeze(-1) * shares], -1).unsqueeze(1).log() for p in (mu, pi)
    )
    ids = torch.tensor([*range(CANDIDATES), 0]).expand(len(mu), 1, CANDIDATES + 1)
    valid = torch.tensor([True] * CANDIDATES + [False]).expand_as(ids)
    probabilities = full_pi.exp()
    return Signals(
        logp_pi=full_pi[..., 0],
        logp_mu=full_mu[..., 0],
        logp_old=full_mu[..., 0],
        advantages=torch.full_like(full_pi[..., 0], advantage),
        response_mask=torch.ones_like(full_pi[..., 0], dtype=torch.bool),
        support=Support(ids, full_mu.gather(-1, ids), full_pi.gather(-1, ids), valid),
        sum_pi_squared=probabilities.square().sum(-1),
        entropy=-(probabilities * full_pi).sum(-1),
        vocab_size=len(SHARES) + 1,
        full=(full_mu, full_pi),
        sampled=torch.zeros(len(mu), 1, dtype=torch.int64),
        uniforms=torch.full_like(full_pi[..., 0], 0.5),
        scope=Scope.MINI_BATCH,
    )


def assumptions(needs: Needs) -> str:
    """What the curves take for granted, in a sentence or two for the caption."""
    text = "Responses of one token."
    if needs & (Needs.TOP_K | Needs.FULL | Needs.SUM_PI_SQUARED):
        text += (
            " Five tokens: the other four share the rest 0.6 : 0.25 : 0.1 : 0.05 under both policies;"
            " support: the sampled token and the first two of them."
        )
    if Needs.RECOMPUTED_ANCHOR in needs:
        text += " The recomputed anchor equals mu."
    if Needs.MINI_BATCH in needs:
        text += " Each token is a mini-batch of its own."
    if Needs.RANDOM in needs:
        text += " The random number is 0.5."
    return text
