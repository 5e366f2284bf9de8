"""workflow: a configuration as it is written: keys given twice, copied tiers, sweeps, limits, random faults."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tiny_project import CONFIG
from workflows.config_checks.file import check_repeated_keys, check_tier
from workflows.config_checks.task import task_problem
from workflows.grid import Grid, GridError
from workflows.tools.fuzz_config import base, faults


def refusal(change: Any, config: dict[str, Any] = CONFIG) -> str:
    """The line that a changed configuration is refused with."""
    changed = copy.deepcopy(config)
    change(changed)
    with pytest.raises(GridError) as raised:
        Grid.check(changed, "bad.yaml")
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("settings:\n  T:\n    lr: 0.001\n    lr: 0.5\n", "settings.T.lr is given twice (lines 3, 4)"),
        ("scoring: {repeats: 2}\nseed: 1\nscoring: {repeats: 4}\n", "scoring is given twice (lines 1, 3)"),
        ("methods:\n  drpo:\n  'drpo': {}\n", "methods.drpo is given twice (lines 2, 3)"),
        ("grid:\n  - {settings: [A], seeds: [0], settings: [B]}\n", "grid[0].settings is given twice (lines 2, 2)"),
        ('{\n\t"tier": "a",\n\t"tier": "b"\n}\n', "tier is given twice (lines 2, 3)"),
        ("a: &a {x: {y: 1, y: 2}}\n", "a.x.y is given twice (lines 1, 1)"),
        ("a: [\n", "no readable YAML"),
    ],
)
def test_a_key_given_twice_is_refused(text: str, words: str, tmp_path: Path) -> None:
    """field round R2-6: a setting, a block, a method's name; in YAML and in JSON."""
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(GridError) as raised:
        check_repeated_keys(path)
    assert str(raised.value).startswith(f"{path}: {words}") and "\n" not in str(raised.value)


def test_merge_keys_and_equal_names_in_different_blocks_are_allowed(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("a: &a {lr: 1, x: 2}\nb: {<<: *a, lr: 3}\nc: [{lr: 1}, {lr: 2}]\nd: &d {e: *d}\n1: x\n'1': y\n")
    check_repeated_keys(path)
    path.write_text("")
    check_repeated_keys(path)


def test_a_copied_configuration_does_not_write_over_what_it_was_copied_from(tmp_path: Path) -> None:
    mine, more = tmp_path / "mine.yaml", tmp_path / "more.yaml"
    mine.write_text("tier: toy\n")
    more.write_text("title: x\n")
    with pytest.raises(GridError, match=r"mine.yaml: tier = 'toy': allowed is the file's own name 'mine' .*--config"):
        check_tier("toy", [mine, more], named=False)
    check_tier("toy", [mine], named=True)
    mine.write_text("tier: mine\n")
    check_tier("mine", [mine, more], named=False)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c.update(worlds=3), ["worlds: 3 is not of type 'object'"]),
        (lambda c: c.update(settings=["T"]), ["settings: ['T'] is not of type 'object'"]),
        (lambda c: c["grid"][0].update(seeds={"count": 10**12}), ["grid[0].seeds", "maximum of 10000"]),
        (lambda c: c["grid"].extend({"settings": ["T"], "seeds": {"count": 4000}} for _ in "ab"), ["grid: 16004 runs"]),
        (lambda c: c["grid"][0].update(seeds=[2**32]), ["grid[0].seeds", "4294967295"]),
        (lambda c: c["scoring"].update(seed=2**32), ["scoring.seed", "4294967295"]),
        (lambda c: c["scoring"].update(problems=8.0), ["scoring.problems: 8.0 is not of type 'integer'"]),
        (lambda c: c["warm_start"].update(lr=float("nan")), ["warm_start.lr = nan: allowed is a finite number"]),
        (lambda c: c["settings"]["T"].update(steps=10**30), ["settings.T.steps = 1", "up to 1e15"]),
        (lambda c: c["methods"].update(a={"method": "mask_drpo"}, b={"method": "mask_drp"}), ["methods.b", "mask_drp"]),
        (
            lambda c: c["methods"].update(p={"method": "drpo", "options": {"delta": "1e-1"}}),
            ["methods.p.options.delta = '1e-1'", "without a point"],
        ),
        (lambda c: c["settings"]["T"].update(tokens={1: 2}), ["settings.T.tokens: the name 1 is no text"]),
        (lambda c: c.update(title=yaml.safe_load("2026-01-01")), ["title = datetime.date(2026, 1, 1)"]),
        (lambda c: c.update(title="a\nb"), ["title = 'a\\nb': allowed is text on one line"]),
        (lambda c: c["worlds"].update({"..": c["worlds"]["sort_3_40"]}), ["worlds", "'..' does not match"]),
        (lambda c: c["worlds"]["sort_3_40"].update(limit=5), ["worlds.sort_3_40.limit = 5: allowed is >= twice"]),
        (
            lambda c: c["worlds"]["sort_3_40"].update(train_prompts=9881),
            ["train_prompts + test_prompts = 9897", "9880 distinct sets"],
        ),
        (lambda c: c["settings"]["T"].update(prompt_length=4), ["settings.T.prompt_length = 4: allowed is >= 5"]),
        (lambda c: c["settings"]["T"].update(prompts=128), ["settings.T.prompts = 128: allowed is 1 to train_prompts"]),
        (
            lambda c: c["settings"]["T"].update(tokens={}),
            ["settings.T.tokens.ks", "vocabulary size 45 of world sort_3_40"],
        ),
        # Did you mean?
        (lambda c: c.update(scorring={}), ["did you mean 'scoring'?"]),
        (lambda c: c["settings"]["T"].update(Mini_batch=1), ["did you mean 'mini_batches'"]),
        (lambda c: c["settings"]["T"].update(rollout_precision="bf61"), ["rollout_precision", "did you mean 'bf16'?"]),
        (lambda c: c["settings"]["T"].update(world="sort_3_4"), ["did you mean 'sort_3_40'?"]),
        (lambda c: c["grid"][0].update(methods=["drpo_smal"]), ["grid[0].methods", "did you mean 'drpo_small'?"]),
        (lambda c: c.update(reference="dppo_topkl"), ["reference = 'dppo_topkl'", "did you mean 'dppo_topk_kl'?"]),
    ],
)
def test_values_that_no_run_can_have_are_refused_in_one_line(change: Any, words: list[str]) -> None:
    message = refusal(change)
    assert message.startswith("bad.yaml: ")
    for word in words:
        assert word in message, message


def test_a_block_that_contains_itself_is_refused() -> None:
    config = copy.deepcopy(CONFIG)
    config["methods"]["drpo_small"]["options"] = config["methods"]
    with pytest.raises(GridError, match=r"methods.drpo_small.options contains itself"):
        Grid.check(config, "bad.yaml")


def test_a_sweep_is_a_method_for_each_combination() -> None:
    """A list under options is a pair (low, high) of a mask, so a sweep has a key of its own; values may be pairs."""
    config = copy.deepcopy(CONFIG)
    config["methods"] = {
        "pg_is": {},
        "drpo": {"sweep": {"delta": [0.05, 12.5], "ratio_cap": [5.0, None]}, "title": "DRPO"},
        "mask": {"method": "dppo_binary_kl", "sweep": {"delta": [0.1, [0.05, 0.2]]}},
    }
    config["grid"] = [{"settings": ["T"], "methods": ["mask", "pg_is"], "seeds": [0]}]
    grid = Grid.check(config, "good.yaml")
    assert list(config["methods"]) == [
        "pg_is",
        *(f"drpo_delta_{delta}_ratio_cap_{cap}" for delta in ("0.05", "12.5") for cap in ("5.0", "none")),
        "mask_delta_0.1",
        "mask_delta_0.05-0.2",
    ]
    assert config["methods"]["drpo_delta_12.5_ratio_cap_none"] == {
        "method": "drpo",
        "options": {"delta": 12.5, "ratio_cap": None},
        "title": "DRPO, delta 12.5, ratio_cap none",
    }
    assert [key[1] for key in grid.keys("grid")] == ["mask_delta_0.1", "mask_delta_0.05-0.2", "pg_is"]
    assert len({variant["title"] for variant in grid.variants().values()}) == 7
    # A configuration that was checked once may be checked again.
    assert Grid.check(copy.deepcopy(config), "good.yaml").keys() == grid.keys()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c["methods"].update(drpo={"sweep": {"delta": 0.1}}), "methods.drpo.sweep.delta: 0.1 is not of type"),
        (lambda c: c["methods"].update(drpo={"sweep": {}}), "methods.drpo.sweep"),
        (
            lambda c: c["methods"].update(drpo={"sweep": {"detla": [1]}}),
            "methods.drpo_detla_1: .*unknown option 'detla'",
        ),
        (
            lambda c: c["methods"].update(drpo={"options": {"delta": 1}, "sweep": {"delta": [2]}}),
            "methods.drpo.sweep.delta: it is in options too",
        ),
        (
            lambda c: c["methods"].update({"drpo": {"sweep": {"delta": [0.1]}}, "drpo_delta_0.1": {"method": "drpo"}}),
            "its variant drpo_delta_0.1 is given twice",
        ),
        (
            lambda c: c["methods"].update(drpo={"sweep": {"delta": [0.1, 0.2]}}) or c.update(reference="drpo"),
            "reference = 'drpo': it is a sweep; allowed is one of its variants: drpo_delta_0.1, drpo_delta_0.2",
        ),
        (lambda c: c["methods"].update(dropo={"sweep": {"delta": [0.1]}}), "methods.dropo: unknown method 'dropo'"),
        (
            lambda c: c["methods"].update(drpo={"sweep": {"delta": list(range(1, 1002))}}),
            "methods.drpo.sweep: 1001 variants; allowed are up to 1000",
        ),
    ],
)
def test_a_sweep_that_says_nothing_clear_is_refused(change: Any, words: str) -> None:
    import re

    assert re.search(words, refusal(change))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda p, f: p["task"].update(name="ownn"),
            "settings.Own.task.name = 'ownn': no task .*did you mean 'own'",
        ),
        (
            lambda p, f: p["task"].update(include_path="none"),
            "settings.Own.task.include_path = none: no such file or dir",
        ),
        (lambda p, f: p["task"].update(include_path=str(f / "reward.py")), "include_path = .*: allowed is a directory"),
        (
            lambda p, f: p.update(model_path=str(f / "data.parquet")),
            "settings.Own.model_path = .*: allowed is a directory",
        ),
        (
            lambda p, f: p.update(val_files=[str(shutil.copy(f / "reward.py", f / "text.parquet"))]),
            "settings.Own.val_files = .*: not a readable parquet",
        ),
        (
            lambda p, f: p.update(train_files=["a[1].parquet"]),
            r"train_files = a\[1\].parquet: allowed is a path without",
        ),
        (
            lambda p, f: p["reward_function"].update(path="{x}.py"),
            r"reward_function.path = \{x\}.py: allowed is a path",
        ),
    ],
)
def test_a_users_own_files_and_task_are_checked_before_a_job(change: Any, words: str, tmp_path: Path) -> None:
    """Not covered: the columns and rows of the data, which the training looks at first (methods.backend.run.checks)."""
    import re

    config = base(tmp_path)
    Grid.check(copy.deepcopy(config), "good.yaml")
    change(config["settings"]["Own"], tmp_path)
    with pytest.raises(GridError) as raised:
        Grid.check(config, "bad.yaml")
    assert re.search(words, str(raised.value)), raised.value


def test_scoring_more_problems_than_a_users_rows_is_refused_before_a_job(tmp_path: Path) -> None:
    """field round R2-10."""
    config = base(tmp_path)
    config["scoring"]["problems"] = 9
    config["grid"][0]["settings"] = ["Own"]
    with pytest.raises(
        GridError, match="scoring.problems = 9: allowed is at most the 8 rows of settings.Own.val_files"
    ):
        Grid.check(config, "bad.yaml")


def test_a_greedy_task_with_repeats_is_refused(tmp_path: Path) -> None:
    """Also where do_sample stands in the file that the task's own includes; a task of lm-eval's own tags is read."""
    (tmp_path / "shared.yaml").write_text("generation_kwargs: {do_sample: false}\nx: !function utils.f\n")
    (tmp_path / "greedy.yaml").write_text("include: shared.yaml\ntask: greedy\n")
    assert "do_sample is false" in str(task_problem("greedy", str(tmp_path), 4))
    assert task_problem("greedy", str(tmp_path), 1) is None
    assert task_problem("sort", str(tmp_path), 4) is None


def test_random_faults_end_in_acceptance_or_in_one_line() -> None:
    """150 of the 2,000 of `python -m workflows fuzz`. Not covered: what a job finds out when it has the model."""
    found = list(faults(150, seed=0))
    assert {what for what in found} <= {"accepted", "refused"}, next(x for x in found if len(x) > 8)
    assert 5 <= found.count("accepted") <= 100


def test_the_number_of_runs_is_said_in_one_line() -> None:
    grid = Grid.check(copy.deepcopy(CONFIG), "good.yaml")
    assert grid.summary() == "[grid] tiny: 4 runs (1 setting, 2 methods, 2 seeds)"
