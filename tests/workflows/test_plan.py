"""What `plan` counts, and how it deals a grid out to machines. No training, no Snakemake."""

from __future__ import annotations

from pathlib import Path

import pytest
from fabricated import write_run

from workflows.__main__ import main
from workflows.plan import Shard

ROOT = Path(__file__).resolve().parents[2]
KEYS = [(setting, f"v{i}", seed) for setting in "AB" for i in range(7) for seed in range(6)]


@pytest.fixture
def tier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The toy tier in a folder of its own."""
    (tmp_path / "toy.yaml").write_text((ROOT / "workflows" / "config" / "toy.yaml").read_text())
    monkeypatch.chdir(tmp_path)
    return "toy.yaml"


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_each_run_is_exactly_one_machines(count: int) -> None:
    taken = [key for i in range(count) for key in KEYS if Shard(i + 1, count).takes(*key)]
    assert sorted(taken) == sorted(KEYS)
    # Seeds in a row of one variant are dealt out in turn, so no machine has more than one above another.
    for i in range(count):
        own = sum(Shard(i + 1, count).takes("A", "v0", seed) for seed in range(6))
        assert 6 // count <= own <= -(-6 // count)


def test_what_a_grid_gains_moves_no_other_run() -> None:
    """The shares are fixed: a change of the rule that deals them makes machines train what another has."""
    taken = [next(i for i in (1, 2, 3) if Shard(i, 3).takes("B", variant, 0)) for variant in ("pg_is", "dppo_topk_kl")]
    assert taken == [1, 3]


def test_the_targets_of_all_machines_are_the_grid(tier: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Not covered: that Snakemake makes these targets and nothing else; they are files that its rules name."""
    targets: list[str] = []
    for i in (1, 2, 3):
        assert main(["plan", tier, "--shard", f"{i}/3"]) == 0
        path = f"results/toy/shard_{i}_of_3.txt"
        assert f"snakemake $(cat {path}) --cores 2 --configfile toy.yaml" in capsys.readouterr().out
        targets += Path(path).read_text().splitlines()
    assert len(targets) == len(set(targets)) == 21
    assert all(target.startswith("results/toy/scores/setting~B/variant~") for target in targets)


def test_time_and_disk_are_measured_where_a_run_of_the_setting_is_done(
    tier: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", tier]) == 0
    said = capsys.readouterr().out
    # 59.5 s a run, as in the reference's time table.
    assert "B: 21 runs, 21 to do, 0.35 core-hours (a guess: the reference's time a response)" in said
    write_run(Path("results/toy"), "B", "pg_is", 0, 0.5, steps=70)
    (Path("results/toy/runs/setting~B/variant~pg_is/seed~0/weights")).write_bytes(bytes(3 << 20))
    timing = Path("results/toy/timings/train/setting~B/variant~pg_is/seed~0.tsv")
    timing.parent.mkdir(parents=True)
    timing.write_text("s\th:m:s\n360.0\t0:06:00\n")
    assert main(["plan", tier]) == 0
    said = capsys.readouterr().out
    assert "21 of 21 runs, 1 of them done" in said
    assert "B: 21 runs, 20 to do, 2.00 core-hours (measured on 1 runs), 63 MB (measured on 1 runs)" in said


@pytest.mark.parametrize("shard", ["0/3", "4/3", "1", "a/b", "1/0"])
def test_a_wrong_shard_is_named(tier: str, shard: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", tier, "--shard", shard]) == 2
    assert f"--shard = {shard!r}: allowed is i/n" in capsys.readouterr().err
