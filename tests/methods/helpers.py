"""Builders shared by the tests of this room: signals out of logits, the lines of the catalogue, hypothesis settings.

Shapes: B sequences, T response tokens, K candidates, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor

from methods import registry
from methods.signals import Signals, Support, sanitise
from methods.support import with_sampled
from tests.methods import reference, reference_masks
from tests.methods.reference import Token

# What the profile of tests/conftest.py leaves open.
properties = settings(max_examples=60)
# For properties that run the whole catalogue on a batch in every example.
batch_properties = settings(properties, max_examples=20)
# For properties that are tried on each of the nine measures.
measure_properties = settings(properties, max_examples=25)


# Our methods, written out: each owes a page, a definition test and bad values of its options, which a method that a
# user adds does not. The latter is held to the contract of every method (test_check.py), and trained (tests/backend).
SHIPPED = (
    "cispo",
    "cppo",
    "dppo_binary_kl",
    "dppo_binary_tv",
    "dppo_negative",
    "dppo_topk_kl",
    "dppo_topk_tv",
    "dro",
    "drpo",
    "drpo_unweighted",
    "geo_mean",
    "grpo",
    "gspo",
    "icepop",
    "mask_drpo",
    "minirl",
    "minirl_tis",
    "mis",
    "penalty_k3",
    "penalty_kl",
    "penalty_tv",
    "pg_is",
    "pg_tis",
    "ppo_clip",
    "ppo_clip_higher",
    "predictive",
    "predictive_aggregated",
    "predictive_certified",
    "predictive_drpo",
    "predictive_finite_step",
    "predictive_random",
    "predictive_uniform",
    "relaxed_clip",
    "ripo",
    "sapo",
    "sat",
    "spo",
    "tis",
    "trm_max",
    "trm_mean",
)


@dataclass(frozen=True)
class Line:
    """A line of the paper's tables: a method with its options, and the same formula in plain Python.

    formula: None for a method that is no function of one token; such a method has a definition test of its own.
    """

    method: str
    options: dict[str, Any]
    formula: Callable[[Token], float] | None

    @property
    def label(self) -> str:
        return "-".join([self.method, *(f"{name}={value}" for name, value in self.options.items())])

    def coefficient(self, signals: Signals) -> Tensor:
        """g of sanitised signals, [B, T]."""
        method = registry.get(self.method)
        return method.coefficient(sanitise(signals), method.configure(self.options))


def lines() -> list[Line]:
    """Every registered method with its defaults, and the second delta of DRPO."""
    return [Line(*row) for row in (*reference.LINES, *reference_masks.LINES)]


@dataclass(frozen=True)
class Rows:
    """Random or chosen positions: logits of both policies [B, T, V], sampled ids and advantages [B, T], K."""

    logits_mu: Tensor
    logits_pi: Tensor
    sampled: Tensor
    advantages: Tensor
    top_k: int

    @property
    def candidates(self) -> Tensor:
        """[B, T, K] ids as the rollout engine records them (ties fall as they fall)."""
        return self.logits_mu.topk(self.top_k, dim=-1).indices

    def signals(self, **changes: Any) -> Signals:
        """Signals as the trainer builds them: top-K of mu, the sampled token with_sampled, both log-probs at those ids.

        The recomputed anchor stands half-way between the logits of mu and pi.
        """
        logp_mu, logp_pi = self.logits_mu.log_softmax(-1), self.logits_pi.log_softmax(-1)
        ids, valid = with_sampled(self.candidates, self.sampled)
        chosen = self.sampled.unsqueeze(-1)
        signals = Signals(
            logp_pi=logp_pi.gather(-1, chosen).squeeze(-1),
            logp_mu=logp_mu.gather(-1, chosen).squeeze(-1),
            advantages=self.advantages,
            response_mask=torch.ones_like(self.sampled, dtype=torch.bool),
            support=Support(ids, logp_mu.gather(-1, ids), logp_pi.gather(-1, ids), valid),
            sum_pi_squared=logp_pi.exp().square().sum(-1),
            entropy=torch.special.entr(logp_pi.exp()).sum(-1),
            vocab_size=logp_mu.shape[-1],
            logp_old=((self.logits_mu + self.logits_pi) / 2).log_softmax(-1).gather(-1, chosen).squeeze(-1),
            full=(logp_mu, logp_pi),
            sampled=self.sampled,
            uniforms=torch.rand(
                self.sampled.shape, dtype=logp_pi.dtype, generator=torch.Generator().manual_seed(self.sampled.numel())
            ),
        )
        return replace(signals, **changes)

    def tokens(self) -> list[list[Token]]:
        """The same positions for the plain-Python reference."""
        candidates, rows = self.candidates.tolist(), []
        for b in range(self.sampled.shape[0]):
            row = []
            for t in range(self.sampled.shape[1]):
                mu = reference.softmax(self.logits_mu[b, t].tolist())
                pi = reference.softmax(self.logits_pi[b, t].tolist())
                row.append(Token(mu, pi, candidates[b][t], int(self.sampled[b, t]), float(self.advantages[b, t])))
            rows.append(row)
        return rows


TOKEN_FIELDS = ("logp_pi", "logp_mu", "advantages", "logp_old", "sum_pi_squared", "entropy", "uniforms")


def changed(signals: Signals, change: Callable[[Tensor], Tensor]) -> Signals:
    """`change` applied to every field that holds real numbers: [B, T], the support's [B, T, S] and full [B, T, V]."""
    support, full = signals.support, signals.full
    slots = {name: change(getattr(support, name)) for name in ("logp_mu", "logp_pi")} if support else {}
    return replace(
        signals,
        **{name: change(getattr(signals, name)) for name in TOKEN_FIELDS if getattr(signals, name) is not None},
        support=replace(support, **slots) if support else None,
        full=(change(full[0]), change(full[1])) if full else None,
    )


def random_rows(
    seed: int, *, batch: int = 4, length: int = 8, vocab: int = 12, top_k: int = 4, drift: float = 1.0
) -> Rows:
    """Off-policy positions in float64: pi is mu with noise of size `drift` on its logits; a third has A = 0 or A <
    0."""
    random = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    logits_mu = 1.5 * normal(batch, length, vocab)
    logits_pi = logits_mu + drift * normal(batch, length, vocab)
    probabilities = logits_mu.softmax(-1).flatten(0, 1)
    sampled = torch.multinomial(probabilities, 1, generator=random).reshape(batch, length)
    advantages = normal(batch, length)
    advantages[:, ::4] = 0.0
    return Rows(logits_mu, logits_pi, sampled, advantages, top_k)


Pair = tuple[list[float], list[float]]


def pairs_of_logits(low: int = 3, high: int = 8, size: float = 4.0) -> st.SearchStrategy[Pair]:
    """Logits of mu and pi over one vocabulary of `low` to `high` tokens."""
    one = st.floats(-size, size, allow_nan=False)

    def both(n: int) -> st.SearchStrategy[Pair]:
        return st.tuples(st.lists(one, min_size=n, max_size=n), st.lists(one, min_size=n, max_size=n))

    return st.integers(low, high).flatmap(both)


def tensor(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)
