"""Claim: what engines return as top-K rows, ties, rounding and padding included, is read as the papers mean it.

Not covered: which ids an engine returns for ties; whatever it recorded is used.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest
import torch

import adapter
import methods
from methods.measures import binary_kl
from methods.signals import Support
from methods.support import masses, with_sampled
from methods.vocabulary import policy_statistics

LOG = math.log


def row(fn: str, mu: list[float], pi: list[float], ids: list[int], sampled: int = 0, vocab: int | None = None) -> float:
    """The quantity of a row whose sampled token is one of the candidates."""
    place = ids.index(sampled)
    logs = ([LOG(p) for p in mu], [LOG(p) for p in pi])
    return adapter.call(  # type: ignore[return-value]
        fn,
        ids=ids,
        mu_logp=logs[0],
        pi_logp=logs[1],
        k=sampled,
        mu_k_logp=logs[0][place],
        pi_k_logp=logs[1][place],
        **({} if vocab is None else {"vocab": vocab}),
    )


@pytest.mark.parametrize("fn", ["topk_tv", "topk_kl", "direction_topk_agg"])
def test_recorded_ids_are_a_set(fn: str) -> None:
    """Field case 31: the order in which a rollout lists its candidates is nobody's business."""
    mu, pi, ids = [0.4, 0.3, 0.1], [0.25, 0.35, 0.2], [7, 3, 5]
    orders = list(itertools.permutations(range(3)))
    values = [row(fn, [mu[i] for i in o], [pi[i] for i in o], [ids[i] for i in o], sampled=3) for o in orders]
    assert values == pytest.approx([values[0]] * len(orders), rel=1e-12) and values[0] != 0


def test_tied_logits_are_read_at_the_recorded_ids() -> None:
    """Field case 31: of four equal logits an engine kept two; the trainer reads those, whichever they are."""
    logits = torch.tensor([[1.0, 1.0, 1.0, 1.0, 0.0]] * 2)
    logp = policy_statistics(logits, torch.tensor([[1, 3], [3, 1]])).logp
    assert torch.equal(logp, torch.full((2, 2), logp[0, 0].item())) and logp[0, 0] == pytest.approx(
        -LOG(4 + 1 / math.e)
    )


def test_the_trainer_never_chooses_candidates() -> None:
    """Field case 31: only the sampler ranks the vocabulary, and the token study, which asks what another K would have
    seen, and the made-up rollout of `methods check`; everything that trains uses what was recorded."""
    root = Path(methods.__file__).parent
    choosing = {p.relative_to(root).as_posix() for p in root.rglob("*.py") if ".topk(" in p.read_text()}
    assert choosing == {"backend/rollout/sampling.py", "tokens/columns.py"}


def test_mass_above_one() -> None:
    """Field case 34: candidates of 1.008 under mu have no tail; 0.95 under pi leaves 0.05."""
    mu, pi = [0.604, 0.404], [0.55, 0.40]
    assert row("topk_tv", mu, pi, [0, 1]) == pytest.approx(0.054)
    assert row("topk_kl", mu, pi, [0, 1]) == pytest.approx(0.604 * LOG(0.604 / 0.55) + 0.404 * LOG(0.404 / 0.40))
    assert row("direction_topk_agg", mu, pi, [0, 1]) == pytest.approx(-0.0252)


def test_only_the_current_tail_sits_under_the_logarithm() -> None:
    """Field case 35: no tail under mu adds nothing; none under pi is above any radius in use, and finite."""
    assert row("topk_kl", [0.6, 0.4], [0.5, 0.3], [0, 1]) == pytest.approx(0.6 * LOG(1.2) + 0.4 * LOG(4 / 3))
    assert 1 < row("topk_kl", [0.5, 0.3], [0.6, 0.4], [0, 1]) < math.inf


@pytest.mark.parametrize("pads", [1, 61])
def test_a_padded_head(pads: int) -> None:
    """Field case 36: rows of the head without a token hold no mass (-inf), and a uniform tail is shared by real ids."""
    real = torch.tensor([[1.0, 0.0, -1.0]])
    padded = torch.cat([real, torch.full((1, pads), -torch.inf)], -1)
    ids = torch.tensor([[0, 1, 2]])
    for name in ("logp", "sum_pi_squared", "entropy"):
        expected = getattr(policy_statistics(real, ids), name)
        assert torch.allclose(getattr(policy_statistics(padded, ids), name), expected, atol=1e-6)
    assert policy_statistics(padded, ids).logp[0, 0].item() == pytest.approx(-0.4076059, abs=1e-6)
    slots, valid = with_sampled(torch.tensor([0, 1]), torch.tensor(0))
    logp = torch.tensor([0.5, 0.3, 0.5]).log()
    classes = masses(Support(slots, logp, logp, valid), vocab_size=66)
    assert classes.unseen is not None and classes.unseen.item() == 64


@pytest.mark.parametrize(
    ("mu", "pi"), [(LOG(1e-6), LOG(3e-6)), (math.log1p(-1e-6), math.log1p(-3e-6))], ids=["rare", "near-certain"]
)
def test_the_two_outcome_kl_in_float32(mu: float, pi: float) -> None:
    """Field case 40: the outcomes swap places and the value stays; subtraction would be off by 3 per cent.

    Near 0 a float32 log-prob itself holds seven digits of 1 - p, so the second row is as right as the first.
    """
    assert binary_kl(torch.tensor(mu), torch.tensor(pi)).item() == pytest.approx(9.0139e-7, rel=1e-3)
