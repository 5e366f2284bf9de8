"""workflow: what must hold for every rule, read from the rules as Snakemake has loaded them; no job runs.

Does not cover what the programs behind the rules do.
"""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from snakemake.api import SnakemakeApi
from snakemake.io import is_flagged
from snakemake.settings.types import ConfigSettings, OutputSettings, ResourceSettings

from tiny_project import CONFIG, ROOT, Project

# Written by a program that puts a temporary file in the place of the output, and rightly empty at times.
RENAMED = {"lists"}
BRACES = "{a} of {wildcards.b}"
# A shell's command is one argument, of which Linux takes no more than 128 kB.
LONGEST_COMMAND = 20_000


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """All rules by name, of a configuration whose free texts have braces and which records tokens."""
    config = copy.deepcopy(CONFIG)
    config["title"], config["tier"] = BRACES, "braces"
    config["methods"]["drpo_small"]["title"] = BRACES
    config["settings"]["P"] = {**config["settings"]["T"], "tokens": {"update": "own", "ks": [1, 5]}}
    config["token_grid"] = [{"settings": ["P"], "methods": ["dppo_topk_kl"], "seeds": [0]}]
    path = tmp_path_factory.mktemp("rules") / f"{config['tier']}.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    before = dict(os.environ)
    with SnakemakeApi(OutputSettings(dryrun=True)) as api:
        made = api.workflow(
            resource_settings=ResourceSettings(cores=1),
            config_settings=ConfigSettings(configfiles=[path]),
            snakefile=ROOT / "Snakefile",
            workdir=ROOT,
        )
        yield {rule.name: rule for rule in made._workflow.rules}
    os.environ.clear()
    os.environ.update(before)


def test_rules_fit_on_the_screen_and_name_no_environment_that_nobody_tried() -> None:
    """At most 120 columns in each line; all rules run in the environment that Snakemake itself runs in."""
    files = [ROOT / "Snakefile", *sorted((ROOT / "workflows" / "rules").glob("*.smk"))]
    lines = [(file.name, number, line) for file in files for number, line in enumerate(file.open(), start=1)]
    assert len(files) > 5 and not [found for found in lines if len(found[2].rstrip()) > 120]
    assert not [found for found in lines if found[2].strip() in ("conda:", "container:", "envmodules:")]


def test_an_empty_file_never_counts_as_done(rules: dict[str, Any]) -> None:
    open_ = [
        f"{rule.name}: {path}"
        for rule in rules.values()
        for path in rule.output
        if not (is_flagged(path, "ensure") or is_flagged(path, "directory") or rule.name in RENAMED)
    ]
    assert open_ == [] and len(rules) > 15


def test_no_shell_writes_an_output_itself(rules: dict[str, Any]) -> None:
    """Only its log: what a shell writes is there before it is whole."""
    for rule in rules.values():
        command = rule.shellcmd or ""
        assert not [part for part in command.split(">")[1:] if not part.split()[0].startswith(("{log", "&1"))], (
            rule.name
        )


def test_free_text_is_no_format_string(rules: dict[str, Any]) -> None:
    """A text among the params is one in which Snakemake looks for wildcards; a function's result is not."""
    for rule in rules.values():
        texts = [*rule.params, *rule.resources.values(), rule.message, rule.shellcmd]
        assert not [text for text in texts if isinstance(text, str) and BRACES in text], rule.name


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project whose 500 runs and scores are there, though empty of meaning; no job made them."""
    made = Project.copied(tmp_path_factory.mktemp("large"))
    config = copy.deepcopy(CONFIG)
    config["title"], config["tier"] = BRACES, "braces"
    config["methods"] = {f"drpo_{i}": {"method": "drpo", "options": {"delta": 0.1 + i / 1000}} for i in range(50)}
    config["methods"]["drpo_0"]["title"] = BRACES
    config["grid"] = [{"settings": ["T"], "seeds": {"count": 10}}]
    made.write_config(config)
    return made


def test_commands_stay_short_in_a_grid_of_500_runs(large: Project) -> None:
    """By a dry run that prints them. Titles with braces are no wildcards there either."""
    out = large.snakemake("--dry-run", "--printshellcmds", "--quiet", "host")
    commands = [line for line in out.splitlines() if "python -m " in line]
    assert sum("methods.backend.launch" in line for line in commands) == 500
    assert max(map(len, commands)) < LONGEST_COMMAND
    assert [line for line in commands if "eval.tables" in line], "the rule that reads all runs is among them"


def test_a_list_is_written_whole_and_read_by_the_programs(large: Project, tmp_path: Path) -> None:
    """The longest list through Snakemake's `script:`, which is no shell's argument."""
    large.snakemake("results/tiny/lists/scores.txt", "results/tiny/variants.json", cores=1)
    lines = (large.results / "lists" / "scores.txt").read_text().splitlines()
    assert len(lines) == 500 and lines[0].startswith("results/tiny/scores/setting~T/variant~drpo_0/seed~0")
    assert BRACES in (large.results / "variants.json").read_text()
    (tmp_path / "list.txt").write_text("\n".join(str(tmp_path / f"{i} of them.json") for i in range(500)) + "\n")
    command = [sys.executable, "-m", "eval.tables", "scores", "--scores", f"@{tmp_path / 'list.txt'}", "--output"]
    done = subprocess.run([*command, str(tmp_path / "out.csv")], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and "0 of them.json" in done.stderr and "Traceback" not in done.stderr
