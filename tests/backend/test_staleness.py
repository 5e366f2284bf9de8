"""definition: the ring of rollout weights."""

from __future__ import annotations

import pytest
import torch

from methods.backend.rollout.staleness import WeightRing, checksum


def weights(value: float) -> dict[str, torch.Tensor]:
    return {"w": torch.full((3,), value)}


def test_sampling_is_staleness_syncs_behind_current() -> None:
    ring = WeightRing(staleness=2)
    seen = []
    for version in range(5):
        ring.push(version, weights(version))
        seen.append((ring.sampling.version, ring.current.version))
    assert seen == [(0, 0), (0, 1), (0, 2), (1, 3), (2, 4)]


def test_no_staleness_samples_the_current_weights() -> None:
    ring = WeightRing(staleness=0)
    for version in range(3):
        ring.push(version, weights(version))
        assert ring.sampling is ring.current and ring.current.version == version


def test_a_resumed_ring_goes_on_as_if_nothing_had_happened() -> None:
    """verl saves before it syncs: the ring of step t's checkpoint ends with version t - 1, and t is pushed again."""
    whole, first = WeightRing(2), WeightRing(2)
    for version in range(4):
        whole.push(version, weights(version))
        first.push(version, weights(version))
    resumed = WeightRing(2)
    resumed.load_state_dict(first.state_dict())
    for ring in (whole, resumed):
        ring.push(4, weights(4))
    assert resumed.sampling.version == whole.sampling.version
    assert [resumed.sampling.checksum, resumed.current.checksum] == [whole.sampling.checksum, whole.current.checksum]


def test_the_same_version_twice_is_one_entry() -> None:
    ring = WeightRing(1)
    ring.push(0, weights(0))
    ring.push(0, weights(5))
    ring.push(1, weights(1))
    assert ring.sampling.version == 0 and ring.sampling.tensors["w"][0] == 5


def test_another_staleness_is_refused() -> None:
    with pytest.raises(ValueError, match="staleness 2, the configuration says 3"):
        WeightRing(3).load_state_dict(WeightRing(2).state_dict())
    with pytest.raises(ValueError, match="staleness = -1"):
        WeightRing(-1)


def test_checksums_see_every_bit_and_name() -> None:
    base = {"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([3], dtype=torch.int64)}
    same = {"b": torch.tensor([3]), "a": torch.tensor([1.0, 2.0])}
    other = {**base, "a": torch.tensor([1.0, 2.0000002])}
    renamed = {"c": base["a"], "b": base["b"]}
    assert checksum(base) == checksum(same)
    assert len({checksum(x) for x in (base, other, renamed, {"a": base["a"].bfloat16(), "b": base["b"]})}) == 4
