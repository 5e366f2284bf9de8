"""Conformance tests of token records: the training is unchanged to the last bit, an interrupted run records the same,
and what is stored is what happened.

Does not cover runs on Ray or vLLM, which refuse `tokens`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from eval.files import InputError
from eval.tokens import records, replay, run_tables, study, tally
from methods.backend import launch
from methods.backend.setting import ConfigError

TOKENS = {"every": 1, "share": 0.3, "floor": 0.0, "ks": [1, 5]}


@pytest.fixture(scope="module")
def runs(tiny_world: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same run without a record, with the unmasked probe, and with its own updates looked at."""
    folder = tmp_path_factory.mktemp("records")
    kinds = {"none": None, "unmasked": TOKENS, "own": {**TOKENS, "update": "own"}}
    for name, tokens in kinds.items():
        launch.train(tiny_world.run_config(folder / name, tokens=tokens))
    return {name: folder / name for name in kinds}


@pytest.mark.parametrize("kind", ["unmasked", "own"])
def test_training_is_unchanged_bit_for_bit(runs: dict[str, Path], kind: str) -> None:
    for name in ("metrics.jsonl", "checkpoints/step_3/model.safetensors"):
        assert (runs[kind] / name).read_bytes() == (runs["none"] / name).read_bytes(), name


def test_both_updates_start_from_the_same_states_and_end_elsewhere(runs: dict[str, Path]) -> None:
    one, other = (records.read(runs[kind] / "tokens.parquet") for kind in ("unmasked", "own"))
    assert one.identity["update"] == "unmasked" and other.identity["update"] == "own"
    for name in ("token", "logp_pi", "full_forward_kl_before", "direction_tv_full", "coefficient"):
        assert np.array_equal(one[name], other[name]), name
    assert not np.array_equal(one["full_forward_kl_after"], other["full_forward_kl_after"])


def test_the_record_is_what_the_engines_said(runs: dict[str, Path]) -> None:
    """float32 on both sides of the record: the forward pass of the rollout's weights agrees with its sampling pass."""
    record = records.read(runs["unmasked"] / "tokens.parquet")
    # bf16 rollouts: a cached and an uncached pass round differently.
    assert np.abs(record["logp_mu"] - record["logp_mu_forward"]).max() < 0.1
    first = record.where((record["step"] == 1) & (record["mini_batch"] == 0))
    # Nothing was trained yet: pi and mu differ by the rollout's bfloat16 alone, and r by no more.
    assert np.abs(first["logp_pi"] - first["logp_mu"]).max() < 0.1
    assert first["full_forward_kl_before"].max() < 0.01
    assert (first["full_forward_kl_after"] != first["full_forward_kl_before"]).any()
    assert set(record["age"]) == {0, 1}
    kept = (record["coefficient"] != 0) & (record["advantage"] != 0)
    assert np.array_equal(kept, record["keep"])


def test_the_own_update_is_the_next_mini_batchs_start(runs: dict[str, Path]) -> None:
    """After the own update of mini-batch 0 stands the policy that mini-batch 1 meets: its norms cannot be equal by
    chance, so the recorded change is that of the real step."""
    record = records.read(runs["own"] / "tokens.parquet")
    moved = np.abs(record["own_step"]) > 0
    assert moved.mean() > 0.9


def test_an_interrupted_run_records_the_same(tiny_world: Any, runs: dict[str, Path], tmp_path: Path) -> None:
    class Killed(Exception):
        pass

    run = tiny_world.run_config(tmp_path / "run", tokens=TOKENS, save_every=1)
    from methods.backend.tokens.recorder import TokenRecorder

    whole = TokenRecorder.flush

    def stop(self: TokenRecorder, step: int) -> None:
        whole(self, step)
        if step == 2:
            raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TokenRecorder, "flush", stop)
        with pytest.raises(Killed):
            launch.train(run)
    assert (run.work_dir / "tokens" / "step_000002.parquet").exists()
    launch.train(run)
    again, once = (pq.read_table(p / "tokens.parquet") for p in (tmp_path / "run", runs["unmasked"]))
    assert again.equals(once)


def test_every_table_of_the_study_comes_out_of_a_record(runs: dict[str, Path]) -> None:
    path = str(runs["unmasked"] / "tokens.parquet")
    rows = list(study.rows(path))
    assert {row["measure"] for row in rows} == {"forward_kl", "tv", "reverse_kl"}
    assert all(row["kept"] + row["kept_ratio"] == row["disagreement"] for row in rows)
    ks = list(run_tables.sweep_rows(path))
    assert {row["k"] for row in ks} == {1, 5, "V"}
    assert [row["wrong_sign"] for row in ks if row["k"] == "V"] in ([0.0], [pytest.approx(np.nan, nan_ok=True)])
    row = run_tables.cause_row(path)
    assert sum(row[name] for name in run_tables.CAUSES) == row["failed"] <= row["kept"] <= row["outside"]
    assert all(row["count"] > 0 for row in run_tables.change_rows(path))


def test_replay_repeats_the_running_methods_coefficient(runs: dict[str, Path]) -> None:
    record = records.read_whole(runs["unmasked"] / "tokens.parquet")
    done = replay.replay(record, ["dppo_topk_kl", "pg_is", "drpo"])
    assert np.allclose(done.coefficients["dppo_topk_kl"], done.record["coefficient"], rtol=1e-5, atol=1e-7)
    assert not (done.actions["pg_is"] == tally.DROPS).any()
    counted = replay.tally(runs["unmasked"] / "tokens.parquet", ["dppo_topk_kl", "pg_is"])
    table = counted.confusion("dppo_topk_kl", "pg_is")
    assert table.sum() == len(done.record) and table[:, tally.KEEPS].sum() == len(done.record)
    where = tally.classes(done.record)
    ranks = [where[n] for n in ("likeliest of mu", "among the candidates", "outside the candidates")]
    assert np.array_equal(np.sum(ranks, axis=0), np.ones(len(done.record)))


def test_a_record_of_another_version_or_kind_is_refused(runs: dict[str, Path], tmp_path: Path) -> None:
    table = pq.read_table(runs["unmasked"] / "tokens.parquet")
    for metadata, message in (({}, "not a token record"), ({"tether_token_record": '{"version": 99}'}, "version 99")):
        pq.write_table(table.replace_schema_metadata(metadata), tmp_path / "other.parquet")
        with pytest.raises(InputError, match=message):
            records.read(tmp_path / "other.parquet")
    pq.write_table(table.drop_columns(["own_step"]), tmp_path / "short.parquet")
    with pytest.raises(InputError, match="lacks column.*own_step"):
        records.read(tmp_path / "short.parquet", ["own_step"])
    pq.write_table(table.drop_columns(["support_ids"]), tmp_path / "short.parquet")
    with pytest.raises(InputError, match="lacks column.*support_ids"):
        records.read_whole(tmp_path / "short.parquet")
    (tmp_path / "text.parquet").write_text("no")
    with pytest.raises(InputError, match="not a Parquet file"):
        records.read(tmp_path / "text.parquet")


@pytest.mark.parametrize(
    ("changes_", "message"),
    [
        ({"tokens": {"update": "masked"}}, "setting.tokens.update = 'masked': allowed are unmasked, own"),
        ({"tokens": {"every": 0}}, "setting.tokens.every = 0"),
        ({"tokens": {"share": 1.5}}, "setting.tokens.share = 1.5"),
        ({"tokens": {"kind": 1}}, "setting.tokens.kind: unknown key"),
        ({"tokens": {}, "top_k": 0}, "setting.top_k = 0: setting.tokens needs"),
        ({"tokens": {}, "runner": "ray"}, "setting.tokens: allowed with setting.runner = 'inprocess'"),
    ],
)
def test_bad_settings_are_refused(tiny_world: Any, tmp_path: Path, changes_: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace(".", r"\.")):
        tiny_world.run_config(tmp_path / "run", **changes_)
