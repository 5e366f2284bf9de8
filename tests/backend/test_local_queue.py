"""definition: the in-process queue gives back what was put, in any order, and forgets what is cleared."""

from __future__ import annotations

import pytest
import torch
from tensordict import NonTensorStack, TensorDict

from methods.backend.local_queue import LocalQueue
from methods.backend.rollout.batch import to_jagged


@pytest.fixture
def queue() -> LocalQueue:
    queue = LocalQueue()
    fields = TensorDict(
        {
            "dense": torch.arange(6).view(3, 2),
            "jagged": to_jagged(torch.arange(9).view(3, 3), torch.tensor([3, 1, 2])),
            "wide": to_jagged(torch.arange(18).view(3, 3, 2), torch.tensor([3, 1, 2])),
            "text": NonTensorStack("a", "b", "c"),
        },
        batch_size=[3],
    )
    queue.kv_batch_put(["x", "y", "z"], "train", fields=fields, tags=[{"n": i} for i in range(3)])
    return queue


def test_rows_come_back_in_the_order_asked_for(queue: LocalQueue) -> None:
    back = queue.kv_batch_get(["z", "x"], "train")
    assert back["dense"].tolist() == [[4, 5], [0, 1]]
    assert [row.tolist() for row in back["jagged"].unbind()] == [[6, 7], [0, 1, 2]]
    assert [row.shape for row in back["wide"].unbind()] == [(2, 2), (3, 2)]
    assert list(back["text"]) == ["c", "a"]


def test_a_whole_column_is_not_copied(queue: LocalQueue) -> None:
    whole = queue.kv_batch_get(["x", "y", "z"], "train", ["dense"])["dense"]
    again = queue.kv_batch_get(["x", "y", "z"], "train", ["dense"])["dense"]
    assert whole.data_ptr() == again.data_ptr()


def test_later_fields_join_and_missing_ones_are_left_out(queue: LocalQueue) -> None:
    queue.kv_batch_put(["y", "x"], "train", fields=TensorDict({"more": torch.tensor([5, 6])}, batch_size=[2]))
    back = queue.kv_batch_get(["x", "y"], "train", ["more", "dense", "nowhere"])
    assert back["more"].tolist() == [6, 5] and set(back.keys()) == {"more", "dense"}


def test_tags_are_merged_listed_as_copies_and_cleared(queue: LocalQueue) -> None:
    queue.kv_batch_put(["x"], "train", tags=[{"status": "finished"}])
    listed = queue.kv_list()["train"]
    assert listed["x"] == {"n": 0, "status": "finished"}
    listed["x"]["n"] = 9
    assert queue.kv_list("train")["train"]["x"]["n"] == 0
    queue.kv_clear(["x"], "train")
    queue.kv_clear("y", "train")
    assert list(queue.kv_list()["train"]) == ["z"]
    with pytest.raises(KeyError):
        queue.kv_batch_get(["x"], "train")


def test_a_row_comes_from_its_latest_put_and_a_cleared_one_from_none(queue: LocalQueue) -> None:
    """Columns are kept whole, so rows of several puts, and of a put that lost one, must not bring back its others."""
    queue.kv_batch_put(["z", "y"], "train", fields=TensorDict({"dense": torch.full((2, 2), 9)}, batch_size=[2]))
    assert queue.kv_batch_get(["x", "y", "z"], "train", ["dense"])["dense"].tolist() == [[0, 1], [9, 9], [9, 9]]
    queue.kv_batch_put(["x", "y", "z"], "train", fields=TensorDict({"dense": torch.zeros(3, 2)}, batch_size=[3]))
    assert queue.kv_batch_get(["z", "y"], "train", ["dense"])["dense"].tolist() == [[0, 0], [0, 0]]
    queue.kv_clear(["x", "w"], "train")
    assert queue.kv_batch_get(["y", "z"], "train", ["dense"])["dense"].tolist() == [[0, 0], [0, 0]]
    with pytest.raises(KeyError, match="x"):
        queue.kv_batch_get(["y", "x", "z"], "train", ["dense"])
    queue.kv_clear(["y", "z"], "train")
    assert not queue._partitions["train"].puts
