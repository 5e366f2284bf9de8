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


# Loaded by every Python of a run: kills it, shell and Snakemake included, when half of a cell's results are staged.
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
        rows = {row["method"]: row for row in csv.DictReader(file)}
    assert set(rows) == {"dppo_topk_kl", "drpo_small"} and all(row["n_seeds"] == "2" for row in rows.values())
    assert "</svg>" in (project.results / "figures" / "curves.svg").read_text()
    assert "Traceback" not in (project.results / "report.html").read_text()
    theorems = json.loads((project.results / "derivations" / "theorems.json").read_text())
    assert "predictive_direction" in json.dumps(theorems)
    assert len(json.loads((project.results / "derivations" / "agreement.json").read_text())["agreement"]) == 11
    assert "<math" in (project.results / "derivations" / "theorems.html").read_text()
    report = (project.results / "report.html").read_text()
    assert report.count("<figure>") == 5 and 'href="derivations/theorems.html#tail_gap"' in report
    assert not list(project.results.rglob("*.partial")) and not list(project.results.rglob("*.tmp"))


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
    shutil.rmtree(project.results / "runs" / project.cell("drpo_small", 1))
    plan = project.planned()
    assert plan.pop("train") == 1 and plan.pop("score") == 1 and set(plan) == DOWNSTREAM
    project.snakemake()
    assert made(project) == before


@pytest.mark.parametrize(
    ("change", "trained", "others"),
    [
        (lambda c: c["methods"]["drpo_small"]["options"].update(delta=0.2), 2, {"score", "labels"}),
        (lambda c: c["panels"]["T"].update(lr=2.0e-3), 4, {"score"}),
        (lambda c: c["panels"]["T"].update(lag=0), 4, {"score"}),
        (lambda c: c["warm_start"].update(target=0.25), 4, {"score", "warm_start"}),
        (lambda c: c["worlds"]["sort_3_40"].update(seed=1), 4, {"score", "warm_start", "world"}),
        (lambda c: c["scoring"].update(problems=9), 0, {"score"}),
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
    assert set(plan) - DOWNSTREAM - {"train"} == others


def test_a_new_method_is_one_file_and_one_line_even_through_kills(project: Project, tmp_path: Path) -> None:
    """Adds a method, kills everything inside its training and then while results are published, recovers.

    Only its cells are made, the rest is untouched; of an unfinished cell nothing is in the place of its results.
    """
    before = made(project)
    (project.root / "methods" / "catalogue" / "half_gradient.py").write_text(DUMMY)
    config = copy.deepcopy(CONFIG)
    config["methods"]["half_gradient"] = None
    project.write_config(config)
    plan = project.planned()
    assert plan["train"] == 2 and plan["score"] == 2 and set(plan) == DOWNSTREAM | {"train", "score", "labels"}

    running = subprocess.Popen(
        project.command(),
        cwd=project.root,
        env=project.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    log = project.results / "work" / project.cell("half_gradient", 0) / "metrics.jsonl"
    deadline = time.monotonic() + 240
    while not (log.exists() and len(log.read_text().splitlines()) >= 2):
        assert running.poll() is None and time.monotonic() < deadline, "the run ended before it could be killed"
        time.sleep(0.005)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()

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
    cells = [project.cell("half_gradient", seed) for seed in (0, 1)]
    assert any((project.results / "work" / cell / "published").exists() for cell in cells)
    assert not [path for cell in cells for path in (project.results / "runs" / cell).rglob("*") if path.is_file()]

    project.snakemake("--unlock")
    project.snakemake("--rerun-incomplete")
    assert project.planned() == {}
    after = made(project)
    changed = {name for name in before if after[name] != before[name]}
    shared = ("tables/", "figures/", "report.html", "labels.json", "manifest.json")
    assert all(name.startswith(shared) for name in changed)
    assert b"Half gradient" in after["figures/curves.svg"] and b"Half gradient" in after["report.html"]
    assert b"half_gradient" in after["tables/summary.csv"] and b"half_gradient" in after["tables/scores.csv"]


def test_a_failing_job_names_its_log(project: Project) -> None:
    """A warm start that cannot reach its target; the message of the program is in the log that is named."""
    config = copy.deepcopy(CONFIG)
    config["tier"] = "broken"
    config["warm_start"] |= {"target": 1.0, "max_steps": 25}
    project.write_config(config, "broken.yaml")
    done = project.attempt(config="broken.yaml")
    assert done.returncode != 0
    named = [word.strip(",") for line in done.stdout.splitlines() if "log:" in line for word in line.split()]
    logs = [Path(word) for word in named if "warm_start" in word and word.endswith(".log")]
    assert logs and "after training.max_steps = 25 steps" in (project.root / logs[0]).read_text()
