"""Definition tests of the replay's counts on a few tokens worked by hand; property: a record read in parts, whatever
their size, gives the counts of the record as a whole.

Does not cover what a training records (tests/backend/test_token_records.py) or the speed (`bench --replay`).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from eval.files import InputError
from eval.tokens import records, replay
from eval.tokens.tally import ACTIONS, DROPS, KEEPS, PULLS_BACK, Tally, action, classes
from methods import registry
from workflows.tools.bench.replay import write_record


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A synthetic record of about 2,000 tokens."""
    path = tmp_path_factory.mktemp("replay") / "tokens.parquet"
    assert write_record(path, 2_000) >= 2_000
    return path


def test_action_is_the_sign_of_g_times_a() -> None:
    got = action(np.array([2.0, -1e-30, 0.0, 0.5, -3.0]), np.array([1.0, -1e-30, 1.0, -1.0, 1.0]))
    assert got.tolist() == [KEEPS, KEEPS, DROPS, PULLS_BACK, PULLS_BACK]


def test_tally_of_five_tokens_by_hand() -> None:
    """Two parts of 3 and 2 tokens; the methods differ on the second and the fifth, of which one is early."""
    counted = Tally(["a", "b"], {"c": "is absent"})
    early = {"early": np.array([True, True, False]), "never": np.array([False] * 3)}
    a, b = [KEEPS, DROPS, KEEPS], [KEEPS, PULLS_BACK, KEEPS]
    counted.add({"a": np.array(a, np.int8), "b": np.array(b, np.int8)}, early)
    late = {"early": np.array([False, False]), "never": np.array([False, False])}
    counted.add({"a": np.array([DROPS, DROPS], np.int8), "b": np.array([DROPS, KEEPS], np.int8)}, late)
    assert counted.tokens == 5
    assert counted.confusion("a", "b").tolist() == [[2, 0, 0], [1, 1, 1], [0, 0, 0]]
    assert counted.confusion("b", "a").tolist() == [[2, 1, 0], [0, 1, 0], [0, 1, 0]]
    assert counted.shares("a").tolist() == [0.4, 0.6, 0.0] and counted.shares("b").tolist() == [0.6, 0.2, 0.2]
    # A class without a token has no share.
    assert counted.share_that_differs("a", "b") == {"early": 0.5}


@pytest.mark.parametrize("tokens", [1, 7, 1_000, 1_000_000])
def test_parts_of_any_size_are_the_record(record: Path, tokens: int) -> None:
    """One token at a time is less than any response: parts are still whole responses."""
    whole = records.read_whole(record)
    parts = list(records.whole_responses(record, tokens))
    assert all(part["position"][0] == 0 for part in parts)
    for name in ("response", "position", "support_ids", "logp_pi"):
        assert np.array_equal(np.concatenate([part[name] for part in parts]), whole[name])


def test_tally_in_parts_equals_the_whole_replay(record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All methods that can run, sequence methods included; batches of 100 tokens hold two or three responses."""
    done = replay.replay(records.read_whole(record), registry.names())
    monkeypatch.setattr(replay, "TOKENS", 100)
    counted = replay.tally(record, registry.names())
    assert counted.methods == list(done.actions) and counted.skipped == done.skipped
    assert "cppo" in counted.methods and "sat" in counted.skipped
    where = classes(done.record)
    for name, acts in done.actions.items():
        assert np.allclose(counted.shares(name), [np.mean(acts == number) for number in range(len(ACTIONS))])
        differ = acts != done.actions["pg_is"]
        expected = {part: differ[flags].mean() for part, flags in where.items() if flags.any()}
        assert counted.share_that_differs(name, "pg_is") == pytest.approx(expected)


def test_tokens_out_of_order_are_refused(record: Path, tmp_path: Path) -> None:
    table = pq.read_table(record)
    for first in ([1, 0], [0, 2, 1]):
        order = pa.array([*first, *range(len(first), len(table))])
        pq.write_table(table.take(order), tmp_path / "swapped.parquet")
        with pytest.raises(InputError, match="not in their order"):
            records.read_whole(tmp_path / "swapped.parquet")
    # The record's first response without its last token, and the last one without its.
    length = table["length"][0].as_py()
    for cut in (pa.concat_tables([table.slice(0, length - 1), table.slice(length)]), table.slice(0, len(table) - 1)):
        pq.write_table(cut, tmp_path / "cut.parquet")
        with pytest.raises(InputError, match=r"mini_batch 0, response \d+ has \d+ of its \d+ tokens"):
            records.read_whole(tmp_path / "cut.parquet")
    place = table.column_names.index("sampled_row")
    none = table.set_column(place, "sampled_row", pa.array([False] * len(table)))
    pq.write_table(none, tmp_path / "none.parquet")
    with pytest.raises(InputError, match="no response was kept whole"):
        records.read_whole(tmp_path / "none.parquet")
