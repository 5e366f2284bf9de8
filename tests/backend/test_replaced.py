"""conformance: what takes the place of verl's functions gives verl's values and gradients, to the last bit.

Whole training steps are in test_repeatability.py. Not covered: other versions of verl, under which nothing is replaced.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torch import Tensor
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1 import replay_buffer, trainer_base
from verl.workers.utils import losses, padding

from methods.backend import replaced
from methods.backend.local_queue import LocalBatchMeta
from methods.backend.rollout.batch import to_jagged

PROMPTS, RESPONSES = torch.tensor([3, 2, 5]), torch.tensor([4, 1, 2])


def batch() -> TensorDict:
    columns = {
        name: to_jagged(torch.zeros(3, int(lengths.max()), dtype=torch.int64), lengths)
        for name, lengths in (("prompts", PROMPTS), ("responses", RESPONSES))
    }
    return TensorDict(columns, batch_size=[3])


@pytest.mark.parametrize("trailing", [(), (2,)])
def test_outputs_over_responses(trailing: tuple[int, ...]) -> None:
    values = torch.randn(int((PROMPTS + RESPONSES).sum()), *trailing, generator=torch.Generator().manual_seed(0))
    weights = torch.randn(3, 4, *trailing, generator=torch.Generator().manual_seed(1))
    results: list[tuple[Tensor, Tensor]] = []
    for function in (padding.no_padding_2_padding, replaced.no_padding_2_padding):
        leaf = values.clone().requires_grad_()
        out = function(leaf, batch())
        (out * weights).sum().backward()
        assert leaf.grad is not None
        results.append((out, leaf.grad))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    assert results[0][0].shape == weights.shape


def test_responses_to_jagged() -> None:
    values = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    mask = to_jagged(torch.ones(3, 4, dtype=torch.int64), RESPONSES)
    expected, out = padding.response_to_nested(values, mask), replaced.response_to_nested(values, mask)
    assert torch.equal(out.values(), expected.values()) and torch.equal(out.offsets(), expected.offsets())


def test_metadata_is_transfer_queues() -> None:
    """Of flat tags; the caller's own dictionaries stay untouched."""
    tags = [{"a": 1}, {"a": 2}]
    ours, theirs = (kind(keys=["x", "y"], tags=tags, partition_id="p") for kind in (LocalBatchMeta, KVBatchMeta))
    ours.tags[0]["a"] = 5
    assert tags[0]["a"] == 1 and len(ours) == len(theirs) == ours.size
    assert vars(ours) | {"tags": theirs.tags} == vars(theirs)
    for keys in (["x"], ["x", "x"]):
        for kind in (LocalBatchMeta, KVBatchMeta):
            with pytest.raises(ValueError):
                kind(keys=keys, tags=tags)


def test_another_version_keeps_its_own(monkeypatch: Any) -> None:
    names = ((losses, "no_padding_2_padding"), (trainer_base, "response_to_nested"), (replay_buffer, "KVBatchMeta"))
    for module, name in names:
        monkeypatch.setattr(module, name, object())
    before = [getattr(module, name) for module, name in names]
    monkeypatch.setattr(replaced, "COMPARED_WITH", "0.9.2")
    replaced.replace_in_worker()
    replaced.replace_in_driver()
    assert [getattr(module, name) for module, name in names] == before
