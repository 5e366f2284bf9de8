"""Claim: log-probs at given ids, collision mass and entropy equal their definitions, whatever the chunk size.

Speed is not covered (`python -m workflows bench --vocabulary` measures it).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest
import torch

from methods import vocabulary
from methods.vocabulary import merge, policy_statistics, shard_statistics
from tests.methods import reference

INF = math.inf


def random_logits(n: int, v: int) -> torch.Tensor:
    return 3 * torch.randn(n, v, generator=torch.Generator().manual_seed(0))


@pytest.mark.filterwarnings("error")  # torch warns where a buffer does not fit its chunk
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


def test_large_logits_lose_nothing() -> None:
    """A shift of 2^13 is exact in these logits (multiples of 1/8), so log-probs and entropy must not move by more."""
    logits = (8 * random_logits(6, 50)).round() / 8
    ids = torch.arange(6).unsqueeze(-1)
    low, high = policy_statistics(logits, ids), policy_statistics(logits + 8192, ids)
    for name in ("logp", "sum_pi_squared", "entropy"):
        assert torch.equal(getattr(low, name), getattr(high, name))


def test_sums_are_as_good_as_logsumexp() -> None:
    """50,000 nearly equal terms, where a running float32 sum is off by more than 1e-6 of itself."""
    logits = random_logits(4, 50_000) / 30
    got, exact = policy_statistics(logits, torch.zeros(4, 1, dtype=torch.int64)), logits.double().log_softmax(-1)
    torch.testing.assert_close(got.logp.double(), exact[:, :1], rtol=0, atol=3e-6)
    torch.testing.assert_close(got.entropy.double(), -(exact.exp() * exact).sum(-1), rtol=1e-6, atol=0)
    torch.testing.assert_close(got.sum_pi_squared.double(), exact.exp().square().sum(-1), rtol=2e-6, atol=0)


def test_chosen_rows_are_read_in_place() -> None:
    logits, rows = random_logits(7, 9), torch.tensor([5, 0, 5])
    ids = torch.tensor([[0], [1], [2]])
    got, want = policy_statistics(logits, ids, rows=rows), policy_statistics(logits[rows], ids)
    assert torch.equal(got.logp, want.logp) and torch.equal(got.entropy, want.entropy)


def largest_allocation(run: Callable[[], Any]) -> int:
    """Bytes of the largest single CPU allocation, those inside torch's operations included."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        run()
    return max(event.nbytes() for event in profile.profiler.kineto_results.events() if event.name() == "[memory]")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [None, torch.arange(64)])
def test_no_temporary_grows_with_tokens_times_vocabulary(
    dtype: torch.dtype, rows: torch.Tensor | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vocabulary, "CHUNK_ELEMENTS", 4000)
    logits, ids = random_logits(64, 1000).to(dtype), torch.zeros(64, 21, dtype=torch.int64)
    # Two buffers of 4,000 float32 numbers, and [64, 21] int64 places.
    assert largest_allocation(lambda: policy_statistics(logits, ids, rows=rows)) == 4 * 4000
    assert largest_allocation(lambda: logits.float().logsumexp(-1)) == 4 * 64 * 1000  # what the test would notice


@pytest.mark.parametrize("cuts", [(0, 9), (0, 4, 9), (0, 1, 2, 7, 9)])
def test_shards_of_the_vocabulary_merge_to_the_whole(cuts: tuple[int, ...]) -> None:
    """Rows with an impossible shard, an impossible token, and shards 200 nats apart included."""
    logits = random_logits(7, 9)
    logits[1, :4], logits[2, 3], logits[3, :4] = -INF, -INF, logits[3, :4] - 200
    logits[4, 4:] -= 200
    ids = torch.tensor([[0, 8, -1, 3, 4, 7]]).expand(7, 6)  # ids on both sides of a cut
    parts = [
        shard_statistics(logits[:, low:high], ids, first_id=low) for low, high in zip(cuts[:-1], cuts[1:], strict=True)
    ]
    got, want = merge(parts).finish(), policy_statistics(logits, ids)
    for name in ("logp", "sum_pi_squared", "entropy"):
        torch.testing.assert_close(getattr(got, name), getattr(want, name), rtol=1e-6, atol=1e-6)


def test_a_merge_is_again_a_part() -> None:
    """((a, b), c) gives what (a, b, c) gives, so a tree of processes may reduce; one part stays as it is.

    Two parts without a possible token merge to such a part.
    """
    logits, ids = random_logits(5, 12), torch.tensor([[1, 5, 11]]).expand(5, 3)
    logits[0, :8] = -INF
    a, b, c = (shard_statistics(logits[:, i : i + 4], ids, first_id=i) for i in (0, 4, 8))
    tree, flat = merge([merge([a, b]), c]), merge([a, b, c])
    for field in fields(tree):
        torch.testing.assert_close(getattr(tree, field.name), getattr(flat, field.name), rtol=1e-6, atol=1e-6)
        assert torch.equal(getattr(merge([a]), field.name), getattr(a, field.name))


def test_a_row_without_a_possible_token_is_not_a_number() -> None:
    """No policy exists there; `sanitise` refuses the NaN inside the response mask. Its neighbours are unharmed."""
    logits = random_logits(3, 6)
    logits[1] = -INF
    got = policy_statistics(logits, torch.tensor([[0], [0], [0]]))
    assert got.logp.isnan().flatten().tolist() == [False, True, False]
    assert got.entropy.isnan().tolist() == got.sum_pi_squared.isnan().tolist() == [False, True, False]
