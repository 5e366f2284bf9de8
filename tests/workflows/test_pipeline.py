"""workflow: what re-runs when, what a whole run leaves behind, and that a kill or a new method costs nothing else.

The tests of this file share one project and leave it complete; they run in the order of the file.
"""

from __future__ import annotations

import copy
import csv
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tiny_project import CONFIG, Project

DOWNSTREAM = {"manifest", "tables", "curves", "report", "time", "all"}

DUMMY = '''"""A dummy method: half the policy gradient.

    g = A / 2

Source: a test. Shapes: signals [B, T] to g [B, T].
"""

from __future__ import annotations

from torch import Tensor

from methods.config import MethodConfig
from methods.registry import register
from methods.signals import Signals


@register("half_gradient", title="Half gradient", source="a test", mark="N")
def coefficient(signals: Signals, config: MethodConfig) -> Tensor:
    """g = A / 2, [B, T]."""
    return signals.advantages / 2
'''


# Loaded by every Python of a run: kills it, shell and Snakemake included, when half of a run's results are staged.
KILL_WHILE_PUBLISHING = """
import os, signal

def link(source, target, link=os.link, calls=[]):
    calls += ["published" in str(target)]
    if sum(calls) == 2 and calls[-1]:
        os.kill(0, signal.SIGKILL)
    link(source, target)

os.link = link
"""


def made(project: Project) -> dict[str, bytes]:
    """Everything that must be the same in every run: all results but logs, timings and caches."""
    return {
        str(path.relative_to(project.results)): path.read_bytes()
        for path in sorted(project.results.rglob("*"))
        if path.is_file()
        and path.relative_to(project.results).parts[0] not in ("logs", "timings", "work")
        and path.name != "timing.jsonl"
    }


def test_a_run_ends_with_table_figure_proof_and_report(project: Project) -> None:
    with (project.results / "tables" / "summary.csv").open() as file:
        rows = {row["variant"]: row for row in csv.DictReader(file)}
    assert set(rows) == {"dppo_topk_kl", "drpo_small"} and all(row["n_seeds"] == "2" for row in rows.values())
    assert "</svg>" in (project.results / "figures" / "curves.svg").read_text()
    assert "Traceback" not in (project.results / "report.html").read_text()
    assert "Trained here: a model of 0.0" in (project.results / "report.html").read_text()
    assert all(row["temperature"] == "1" and row["note"] == "2 seeds: not a test" for row in rows.values())
    theorems = json.loads((project.results / "derivations" / "theorems.json").read_text())
    assert "predictive_direction" in json.dumps(theorems)
    assert len(json.loads((project.results / "derivations" / "agreement.json").read_text())["agreement"]) == 11
    assert "<math" in (project.results / "derivations" / "theorems.html").read_text()
    report = (project.results / "report.html").read_text()
    assert report.count("<figure>") == 5 and 'href="derivations/theorems.html#tail_gap"' in report
    assert not list(project.results.rglob("*.partial")) and not list(project.results.rglob("*.tmp"))
    works = [path for path in (project.results / "work").glob("*/*/*") if path.is_dir()]
    assert len(works) == 4 and all((work / "finished.json").is_file() for work in works), "of a finished run, it stays"


@pytest.mark.parametrize("environment", [{}, {"PYTHONHASHSEED": "1", "TMPDIR": "/var/tmp"}])
def test_nothing_is_to_be_done_afterwards(environment: dict[str, str], project: Project) -> None:
    """field case 71: other cores, hash seed and temporary folder re-run nothing."""
    out = project.snakemake("--dry-run", cores=1, **environment)
    assert "Nothing to be done" in out


def test_touching_an_input_re_runs_nothing(project: Project) -> None:
    """field case 75: a new time stamp on the same bytes."""
    (project.root / "methods" / "signals.py").touch()
    assert project.planned() == {}


def test_a_deleted_run_is_made_again_alone_and_equal(project: Project) -> None:
    before = made(project)
    shutil.rmtree(project.results / "runs" / project.run_config("drpo_small", 1))
    plan = project.planned()
    assert plan.pop("train") == 1 and plan.pop("score") == 1 and set(plan) == DOWNSTREAM
    project.snakemake()
    assert made(project) == before


@pytest.mark.parametrize(
    ("change", "trained", "others"),
    [
        (lambda c: c["methods"]["drpo_small"]["options"].update(delta=0.2), 2, {"score", "variants"}),
        (lambda c: c["settings"]["T"].update(lr=2.0e-3), 4, {"score"}),
        (lambda c: c["settings"]["T"].update(staleness=0), 4, {"score"}),
        (lambda c: c["warm_start"].update(target=0.25), 4, {"score", "warm_start"}),
        (lambda c: c["worlds"]["sort_3_40"].update(seed=1), 4, {"score", "warm_start", "world"}),
        (lambda c: c["scoring"].update(problems=9), 0, {"score"}),
        (lambda c: c["scoring"].update(temperature=0.5, top_p=0.9), 0, {"score"}),
        (lambda c: c.update(title="Another heading"), 0, set()),
        (lambda c: c["grid"][0].update(seeds=[0, 1, 2]), 2, {"score"}),
        (lambda c: c.update(reference="drpo_small"), 0, set()),
    ],
)
def test_a_changed_setting_re_runs_what_it_affects(
    change: Any, trained: int, others: set[str], project: Project
) -> None:
    """field case 69: every kind of setting, by a dry run with a changed configuration."""
    config = copy.deepcopy(CONFIG)
    change(config)
    project.write_config(config, "changed.yaml")
    plan = project.planned(config="changed.yaml")
    assert plan.get("train", 0) == trained
    # Lists of the grid's files and its configuration, which programs read: cheap, and made again where they change.
    assert set(plan) - DOWNSTREAM - {"train", "lists"} == others


def test_a_new_method_is_one_file_and_one_line_even_through_kills(project: Project, tmp_path: Path) -> None:
    """Adds a method, kills everything inside its training and then while results are published, recovers.

    Only its runs are made, the rest is untouched; of an unfinished run nothing is in the place of its results.
    """
    before = made(project)
    (project.root / "methods" / "catalogue" / "half_gradient.py").write_text(DUMMY)
    config = copy.deepcopy(CONFIG)
    config["methods"]["half_gradient"] = None
    project.write_config(config)
    plan = project.planned()
    assert (
        plan["train"] == 2 and plan["score"] == 2 and set(plan) == DOWNSTREAM | {"train", "score", "variants", "lists"}
    )

    running = subprocess.Popen(
        project.command(),
        cwd=project.root,
        env=project.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    log = project.results / "work" / project.run_config("half_gradient", 0) / "metrics.jsonl"
    deadline = time.monotonic() + 240
    while not (log.exists() and len(log.read_text().splitlines()) >= 2):
        assert running.poll() is None and time.monotonic() < deadline, "the run ended before it could be killed"
        time.sleep(0.005)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()

    locked = project.attempt()
    assert locked.returncode != 0 and "make recover TIER=tiny" in locked.stdout, locked.stdout
    assert "Directory cannot be locked" not in locked.stdout

    (tmp_path / "sitecustomize.py").write_text(KILL_WHILE_PUBLISHING)
    project.snakemake("--unlock")
    stopped = subprocess.run(
        project.command("--rerun-incomplete"),
        cwd=project.root,
        env=project.environment(PYTHONPATH=f"{tmp_path}{os.pathsep}{project.root}"),
        capture_output=True,
        start_new_session=True,
    )
    assert stopped.returncode == -signal.SIGKILL
    runs = [project.run_config("half_gradient", seed) for seed in (0, 1)]
    assert any((project.results / "work" / run / "published").exists() for run in runs)
    assert not [path for run in runs for path in (project.results / "runs" / run).rglob("*") if path.is_file()]

    project.snakemake("--unlock")
    project.snakemake("--rerun-incomplete")
    assert project.planned() == {}
    after = made(project)
    changed = {name for name in before if after[name] != before[name]}
    shared = ("tables/", "figures/", "report.html", "variants.json", "manifest.json", "lists/")
    assert all(name.startswith(shared) for name in changed)
    assert b"Half gradient" in after["figures/curves.svg"] and b"Half gradient" in after["report.html"]
    assert b"half_gradient" in after["tables/summary.csv"] and b"half_gradient" in after["tables/scores.csv"]


def test_a_failing_job_is_told_with_its_cause_and_log_and_again_at_the_end(project: Project) -> None:
    """A warm start that cannot reach its target; a title with braces, which no rule takes for wildcards."""
    config = copy.deepcopy(CONFIG)
    config["tier"], config["title"] = "broken", "{a} of {wildcards.b}"
    config["warm_start"] |= {"target": 1.0, "max_steps": 25}
    project.write_config(config, "broken.yaml")
    done = project.attempt(config="broken.yaml")
    assert done.returncode != 0
    log = "results/broken/logs/warm_start/xs-sort_3_40-ws0.log"
    cause = "RuntimeError: warm start: accuracy 0.000 after training.max_steps = 25 steps, training.target = 1.0"
    told = f"FAILED warm_start xs sort_3_40 0\n  {cause}\n  log: {log}\n"
    assert done.stdout.count(told) == 2 and cause in (project.root / log).read_text(), done.stdout
    assert f"1 job failed:\n{told}" in done.stdout and "run the same command again" in done.stdout
    # Neither the command nor Snakemake's words around each job.
    for noise in ("python -m", "set -euo pipefail", "jobid", "CalledProcessError", "steps ("):
        assert noise not in done.stdout
    (kept,) = sorted((project.root / ".snakemake" / "log").iterdir())[-1:]
    assert "python -m workflows.world.warm_start" in kept.read_text(), "Snakemake's own log has all"


def test_ctrl_c_says_that_the_same_command_goes_on(project: Project) -> None:
    """To the whole group, as a terminal sends it, in a warm start without end."""
    config = copy.deepcopy(CONFIG)
    config["tier"] = "broken"
    config["warm_start"] |= {"target": 1.0, "max_steps": 1_000_000}
    project.write_config(config, "broken.yaml")
    running = subprocess.Popen(
        project.command("--rerun-incomplete", config="broken.yaml"),
        cwd=project.root,
        env=project.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert running.stdout is not None
    lines = []
    for line in running.stdout:
        lines.append(line)
        if line.startswith("[warm start] step"):
            break
    os.killpg(running.pid, signal.SIGINT)
    rest, _ = running.communicate(timeout=120)
    assert running.returncode not in (0, None)
    assert "stopped: " in rest and "The same command goes on from there" in rest, "".join(lines) + rest
    assert "FAILED" not in rest and "Traceback" not in rest
    shutil.rmtree(project.root / "results" / "broken")
