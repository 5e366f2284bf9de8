"""Claim: log-probs at given ids, collision mass and entropy equal their definitions, whatever the chunk size.

Memory use and speed are not covered.
"""

from __future__ import annotations

import math

import pytest
import torch

from methods import vocabulary
from methods.vocabulary import policy_statistics
from tests.methods import reference

INF = math.inf


def random_logits(n: int, v: int) -> torch.Tensor:
    return 3 * torch.randn(n, v, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("chunk", [1, 20, 1 << 22])
def test_statistics_equal_the_definition(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary, "CHUNK_ELEMENTS", chunk)
    logits = random_logits(7, 9)
    ids = torch.arange(21).reshape(7, 3) % 9
    got = policy_statistics(logits, ids)
    for row in range(7):
        p = reference.softmax(logits[row].tolist())
        want = torch.tensor([math.log(p[i]) for i in ids[row].tolist()])
        torch.testing.assert_close(got.logp[row], want, rtol=1e-5, atol=1e-5)
        assert got.sum_pi_squared[row].item() == pytest.approx(sum(x * x for x in p), rel=1e-5)
        assert got.entropy[row].item() == pytest.approx(-sum(x * math.log(x) for x in p), rel=1e-5)


def test_fillers_have_no_mass() -> None:
    logp = policy_statistics(random_logits(1, 4), torch.tensor([[2, -1, -9]])).logp
    assert torch.isfinite(logp[0, 0]) and (logp[0, 1:] == -INF).all()


def test_impossible_and_certain_tokens() -> None:
    """Masked logits and float16 extremes: entropies log 2 and 0, never NaN (field case 8)."""
    got = policy_statistics(torch.tensor([[0.0, 0.0, -INF]]), torch.tensor([[2, 0]]))
    assert got.entropy.item() == pytest.approx(math.log(2)) and got.sum_pi_squared.item() == pytest.approx(0.5)
    assert got.logp[0, 0] == -INF and got.logp[0, 1].item() == pytest.approx(-math.log(2))
    extreme = policy_statistics(torch.tensor([[65504.0, -65504.0]], dtype=torch.float16), torch.tensor([[0]]))
    assert extreme.entropy.item() == 0 and extreme.logp.item() == 0


def test_low_precision_logits_are_summed_in_float32() -> None:
    logits = random_logits(2, 50).bfloat16()
    got = policy_statistics(logits, torch.zeros(2, 1, dtype=torch.int64))
    want = policy_statistics(logits.float(), torch.zeros(2, 1, dtype=torch.int64))
    for name in ("logp", "sum_pi_squared", "entropy"):
        assert getattr(got, name).dtype == torch.float32
        assert torch.equal(getattr(got, name), getattr(want, name))


def test_nothing_asks_for_a_gradient_and_no_row_is_fine() -> None:
    logits = random_logits(2, 5).requires_grad_()
    assert not policy_statistics(logits, torch.tensor([[0], [1]])).logp.requires_grad
    empty = policy_statistics(logits[:0], torch.zeros(0, 3, dtype=torch.int64))
    assert empty.logp.shape == (0, 3) and empty.entropy.shape == (0,)


def test_an_id_outside_the_vocabulary_is_refused() -> None:
    with pytest.raises(ValueError, match="support id 5 is outside the vocabulary of 5 logits"):
        policy_statistics(random_logits(1, 5), torch.tensor([[0, 5]]))
