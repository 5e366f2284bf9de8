"""Tables of a small grid with round numbers. Not covered: thousands of runs (rows are built in memory)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from eval.files import InputError, read_csv
from eval.runs import RunKey, key_of, read_metrics
from eval.tables import TIDY, main, summary_columns

Paths = tuple[list[str], list[str]]


def table(name: str, paths: Paths, output: Path, *options: str) -> list[dict[str, str]]:
    """Build one table, assert success, return its rows."""
    runs, scores = paths
    assert main([name, "--runs", *runs, "--scores", *scores, "--output", str(output), *options]) == 0
    return read_csv(output, name)


def row_of(rows: list[dict[str, str]], **wanted: str) -> dict[str, str]:
    """The one row with these runs."""
    (row,) = [row for row in rows if all(row[key] == value for key, value in wanted.items())]
    return row


def test_scores_are_tidy(paths: Paths, tmp_path: Path) -> None:
    """A row per run, step and metric, sorted; the stderr is a metric of its own; n is the number of problems."""
    rows = table("scores", paths, tmp_path / "scores.csv")
    assert tuple(rows[0]) == TIDY
    assert len(rows) == 6 * 2 * 2
    keys = [(row["setting"], row["variant"], int(row["seed"]), int(row["step"]), row["metric"]) for row in rows]
    assert keys == sorted(keys)
    row = row_of(rows, variant="dppo_topk_kl", seed="2", step="4", metric="avg@16")
    assert (row["value"], row["n"]) == ("0.62", "256")
    assert row_of(rows, variant="pg_is", seed="0", step="0", metric="avg@16_stderr")["value"] == "0.02"


def test_curves_hold_training_and_scores(paths: Paths, tmp_path: Path) -> None:
    """Every training metric of every step, and avg@16 at the scored steps."""
    rows = table("curves", paths, tmp_path / "curves.csv")
    assert len(rows) == 6 * (4 + 2 + 2)
    assert row_of(rows, variant="pg_is", seed="1", step="3", metric="reward/mean")["value"] == "0.41"
    assert row_of(rows, variant="pg_is", seed="1", step="3", metric="reward/mean")["n"] == ""
    assert row_of(rows, variant="pg_is", seed="1", step="4", metric="avg@16")["value"] == "0.3"


def test_summary_by_hand(paths: Paths, tmp_path: Path) -> None:
    """Start 0.4; final 0.61 and 0.3; the run mean leaves out the two staleness steps; paired differences -0.31 and
    -0.1."""
    rows = table("summary", paths, tmp_path / "summary.csv")
    assert list(rows[0]) == summary_columns()
    ours, theirs = row_of(rows, variant="dppo_topk_kl"), row_of(rows, variant="pg_is")
    assert (ours["n_seeds"], ours["final_step"], ours["reference"]) == ("3", "4", "dppo_topk_kl")
    assert (ours["start"], ours["final"], ours["gain"], ours["run_reward"]) == ("0.4", "0.61", "0.21", "0.51")
    # 0.61 -+ 4.303 · 0.01 / sqrt(3).
    assert (float(ours["final_low"]), float(ours["final_high"])) == pytest.approx((0.585159, 0.634841), abs=1e-6)
    assert (ours["final_diff"], ours["final_diff_low"], ours["final_diff_high"]) == ("0", "0", "0")
    assert (ours["metric"], ours["temperature"], ours["final_values"]) == ("avg@16", "", "")
    assert (theirs["final"], theirs["gain"], theirs["run_reward"]) == ("0.3", "-0.1", "0.41")
    assert float(theirs["final_diff"]) == pytest.approx(-0.31)
    assert float(theirs["run_reward_diff_low"]) == pytest.approx(-0.1)
    assert float(theirs["run_reward_diff_high"]) == pytest.approx(-0.1)
    assert (theirs["n_pairs"], theirs["run_reward_wins"], theirs["note"]) == ("3", "0", "")
    assert theirs["interval"] == "t 0.95"


def test_two_seeds_are_shown_not_tested(paths: Paths, tmp_path: Path) -> None:
    """Whatever the difference, two seeds have their values in place of limits, and the note says so."""
    two = tuple([path for path in given if "seed~2" not in path] for given in paths)
    for row in table("summary", (two[0], two[1]), tmp_path / "a.csv"):
        assert {row[name] for name in row if name.endswith(("_low", "_high"))} == {"nan"}
        assert row["note"] == "2 seeds: not a test"
    row = row_of(read_csv(tmp_path / "a.csv", "summary"), variant="pg_is")
    assert (row["final_diff"], row["final_diff_values"]) == ("-0.305", "-0.3; -0.31")


def test_tables_say_at_which_temperature(paths: Paths, results: Path, tmp_path: Path) -> None:
    """Of the scored samples by the scores file, of the validation by the run's manifest."""
    for path in map(Path, paths[1]):
        _edit(path, "sampling", {"temperature": 0.5, "top_p": 0.9, "do_sample": True})
    for run in paths[0]:
        _edit(Path(run) / "manifest.json", "setting", {"staleness": 2, "temperature": 0.7})
    row = table("summary", paths, tmp_path / "a.csv")[0]
    assert (row["metric"], row["temperature"], row["top_p"]) == ("avg@16", "0.5", "0.9")
    curves = table("curves", paths, tmp_path / "b.csv")
    said = {(row["metric"], row["value"]) for row in curves if row["metric"].endswith(("temperature", "top_p"))}
    assert said == {("sampling/temperature", "0.5"), ("sampling/top_p", "0.9"), ("val/temperature", "0.7")}


def test_same_bytes_whatever_the_order(paths: Paths, tmp_path: Path) -> None:
    """Arguments in another order, or another run of the same command, change nothing."""
    for name in ("scores", "curves", "summary"):
        table(name, paths, tmp_path / "a.csv")
        table(name, (paths[0][::-1], paths[1][::-1]), tmp_path / "b.csv")
        assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


def test_another_method_changes_no_other_row(paths: Paths, results: Path, tmp_path: Path) -> None:
    """Adding a method to the grid leaves the rows of the others as they were."""
    before = table("summary", paths, tmp_path / "a.csv")
    for kind, name in (("runs", "seed~0"), ("scores", "seed~0.json")):
        source, target = (results / kind / "setting~B" / f"variant~{variant}" / name for variant in ("pg_is", "dummy"))
        target.parent.mkdir(parents=True)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
        paths[kind == "scores"].append(str(target))
    after = table("summary", paths, tmp_path / "b.csv")
    assert [row for row in after if row["variant"] != "dummy"] == before
    dummy = row_of(after, variant="dummy")
    assert dummy["n_pairs"] == "1" and dummy["final_diff_low"] == "nan"
    assert "1 seed: not a test" in dummy["note"] and "2 seed(s) without a partner" in dummy["note"]


def test_run_shorter_than_its_staleness(paths: Paths, results: Path, tmp_path: Path) -> None:
    """No step is left for the run mean: nan with a note, the final score unharmed."""
    for run in paths[0]:
        (Path(run) / "manifest.json").write_text(json.dumps({"setting": {"staleness": 16}}))
    rows = table("summary", paths, tmp_path / "a.csv")
    row = row_of(rows, variant="pg_is")
    assert (row["run_reward"], row["run_reward_diff"], row["final"]) == ("nan", "nan", "0.3")
    assert "no step after those that sample from the start" in row["note"]


def test_reference_may_be_missing(paths: Paths, tmp_path: Path) -> None:
    """Comparing with a variant that was not run: nan and a note, not a crash."""
    rows = table("summary", paths, tmp_path / "a.csv", "--reference", "ppo")
    assert {row["final_diff"] for row in rows} == {"nan"}
    assert all("no ppo in this setting" in row["note"] for row in rows)


def test_setting_without_scores(paths: Paths, tmp_path: Path) -> None:
    """A user's setting without an lm-eval task: no accuracy, with a note; the run mean and its difference stand."""
    rows = table("summary", (paths[0], []), tmp_path / "a.csv")
    row = row_of(rows, variant="pg_is")
    assert (row["start"], row["final"], row["gain"], row["final_diff"]) == ("nan",) * 4
    assert row["run_reward"] == "0.41" and float(row["run_reward_diff"]) == pytest.approx(-0.1)
    assert row["final_step"] == "4" and row["note"].count("not scored") == 1
    assert table("scores", (paths[0], []), tmp_path / "b.csv") == []


def test_start_has_no_interval(paths: Paths, tmp_path: Path) -> None:
    """The three seeds share one warm start, so a zero-width interval would be an error bar of nothing."""
    rows = table("summary", paths, tmp_path / "a.csv")
    assert {row["start"] for row in rows} == {"0.4"} and "start_low" not in rows[0]


@pytest.mark.parametrize("option", ["--level=1", "--resamples=0", "--seed=-1"])
def test_bad_resampling(option: str, paths: Paths, tmp_path: Path, capsys: Any) -> None:
    """Refused in one line."""
    arguments = ["summary", "--runs", *paths[0], "--scores", *paths[1], "--output", str(tmp_path / "o.csv"), option]
    assert main(arguments) == 2
    assert option.partition("=")[0] in capsys.readouterr().err


def test_key_names() -> None:
    """Variants may hold dots and underscores; anything else in place of a run is refused."""
    assert key_of(Path("x/scores/setting~B/variant~drpo_0.15/seed~0.json")) == RunKey("B", "drpo_0.15", 0)
    with pytest.raises(InputError, match="setting~NAME/variant~VARIANT/seed~NUMBER"):
        key_of(Path("runs/B/drpo/0"))


def _change(path: Path, text: str) -> None:
    path.write_text(text)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("runs/{}/manifest.json", "{}", "manifest.json: setting.staleness must be an integer >= 0, got None"),
        ("runs/{}/manifest.json", '{"setting": {"staleness": "16"}}', "got '16'"),
        ("runs/{}/metrics.jsonl", '{"step": 1, "data": {"kl": 0.1}}', "no 'reward/mean' at any step; it has ['kl']"),
        ("runs/{}/metrics.jsonl", '{"step": 1, "data": {"kl": "x"}}', "line 1, kl: expected a number, got 'x'"),
        ("runs/{}/metrics.jsonl", '{"step": 1}', 'line 1: expected {"step": integer'),
        ("runs/{}/metrics.jsonl", "", "no steps"),
        ("scores/{}.json", "[]", "not a scores file"),
        ("scores/{}.json", '{"checkpoints": []}', "'avg@16' is needed at a first and a last step"),
    ],
)
def test_bad_files(
    file: str, text: str, message: str, paths: Paths, results: Path, tmp_path: Path, capsys: Any
) -> None:
    """One line that names file and field; no table."""
    _change(results / file.format("setting~B/variant~pg_is/seed~1"), text)
    output = tmp_path / "out.csv"
    assert main(["summary", "--runs", *paths[0], "--scores", *paths[1], "--output", str(output)]) == 2
    error = capsys.readouterr().err
    assert message in error and "seed~1" in error
    assert not output.exists()


def test_steps_must_agree(paths: Paths, results: Path, tmp_path: Path, capsys: Any) -> None:
    """A run scored at another last step would compare unlike things."""
    path = results / "scores/setting~B/variant~pg_is/seed~2.json"
    _change(path, path.read_text().replace('"step": 4', '"step": 3'))
    arguments = ["summary", "--runs", *paths[0], "--scores", *paths[1], "--output", str(tmp_path / "o.csv")]
    assert main(arguments) == 2
    assert "from step 0 to 3" in capsys.readouterr().err


def test_runs_and_scores_must_match(paths: Paths, tmp_path: Path, capsys: Any) -> None:
    """A run without scores, scores without a run, the same run twice."""
    runs, scores = paths
    for given, message in (
        ((runs, scores[1:]), "its scores are not among"),
        ((runs[1:], scores), "its run is not among"),
        (([*runs, runs[0]], scores), "are the same run"),
    ):
        arguments = ["curves", "--runs", *given[0], "--scores", *given[1], "--output", str(tmp_path / "o.csv")]
        assert main(arguments) == 2
        assert message in capsys.readouterr().err


def test_repeated_step_is_refused(tmp_path: Path) -> None:
    """A resumed run that logged a step twice."""
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "data": {}}\n' * 2)
    with pytest.raises(InputError, match="line 2: step 1 appears twice"):
        read_metrics(tmp_path)


SETTINGS = {
    "task": "sort",
    "data": {"sha256": "a", "problems": 256},
    "repeats": 16,
    "seed": 0,
    "batch_size": 512,
    "dtype": "float32",
    "sampling": {"temperature": 1.0},
    "versions": {"torch": "2"},
}


def _edit(path: Path, name: str, value: Any) -> None:
    """Set a dotted key of a JSON file."""
    content = found = json.loads(path.read_text())
    *parents, last = name.split(".")
    for parent in parents:
        found = found.setdefault(parent, {})
    found[last] = value
    path.write_text(json.dumps(content))


@pytest.mark.parametrize("name", ["scores", "curves", "summary"])
@pytest.mark.parametrize(
    ("field", "value", "shown"),
    [
        ("seed", 1, "0 and 1"),
        ("batch_size", 64, "512 and 64"),
        ("dtype", "bfloat16", "'float32' and 'bfloat16'"),
        ("data.sha256", "b", "'a' and 'b'"),
        ("sampling.temperature", 0.5, "1.0 and 0.5"),
        ("versions.torch", "3", "'2' and '3'"),
        ("quantise", "fp8", "none and 'fp8'"),
    ],
)
def test_scores_made_otherwise_are_refused(
    name: str, field: str, value: Any, shown: str, paths: Paths, results: Path, tmp_path: Path, capsys: Any
) -> None:
    """One file of a setting differs: both files, the field and both values are named, whatever the table."""
    for path in map(Path, paths[1]):
        path.write_text(json.dumps({**json.loads(path.read_text()), **SETTINGS}))
    assert table(name, paths, tmp_path / "a.csv")
    _edit(results / "scores/setting~B/variant~pg_is/seed~1.json", field, value)
    given = [name, "--runs", *paths[0], "--scores", *paths[1], "--output", str(tmp_path / "o.csv")]
    assert main(given) == 2
    error = capsys.readouterr().err
    assert f"with another {field}: {shown}" in error and error.count(".json") == 2 and "pg_is/seed~1.json" in error
    assert not (tmp_path / "o.csv").exists()


@pytest.mark.parametrize(
    ("field", "value"), [("setting.lr", 0.1), ("run.model", "m"), ("run.options", {"delta": 1}), ("versions.verl", "1")]
)
def test_runs_made_otherwise_are_refused(
    field: str, value: Any, paths: Paths, results: Path, tmp_path: Path, capsys: Any
) -> None:
    """A run of a setting with another learning rate, model, option of its method or version of verl."""
    _edit(results / "runs/setting~B/variant~pg_is/seed~1/manifest.json", field, value)
    given = ["curves", "--runs", *paths[0], "--scores", *paths[1], "--output", str(tmp_path / "o.csv")]
    assert main(given) == 2
    error = capsys.readouterr().err
    assert f"with another {field.partition('.')[0]}" in error and "pg_is/seed~1/manifest.json" in error


def test_settings_may_differ_in_what_is_theirs(paths: Paths, results: Path, tmp_path: Path) -> None:
    """Task, data and sampling belong to a setting, the settings of scoring to the whole table."""
    for kind, end in (("runs", ""), ("scores", ".json")):
        shutil.copytree(results / kind / "setting~B", results / kind / "setting~C")
        paths[kind == "scores"].extend(
            str(path) for path in (results / kind / "setting~C").glob(f"*/seed~?{end}") if path.name.endswith(end)
        )
    for path in (results / "scores/setting~C").glob("*/*.json"):
        _edit(path, "task", "other")
        _edit(path, "data", {"sha256": "c"})
    assert {row["setting"] for row in table("summary", paths, tmp_path / "a.csv")} == {"B", "C"}
    for path in (results / "scores/setting~C").glob("*/*.json"):
        _edit(path, "seed", 5)
    assert main(["scores", "--scores", *paths[1], "--output", str(tmp_path / "o.csv")]) == 2
