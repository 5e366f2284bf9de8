"""A copy of the project with a tiny grid, and how to run Snakemake in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
COPIED = ("Snakefile", "methods", "eval", "derivations", "workflows")

CONFIG: dict[str, Any] = {
    "tier": "tiny",
    "worlds": {"sort_3_40": {"numbers": 3, "limit": 40, "train_prompts": 64, "test_prompts": 16}},
    "models": {"xs": {"hidden": 32, "layers": 1, "heads": 1}},
    "warm_start": {"target": 0.2, "batch": 128, "lr": 0.004, "check_every": 25, "check_prompts": 64},
    "settings": {
        "T": {
            "world": "sort_3_40",
            "model": "xs",
            "lr": 1.0e-3,
            "prompts": 4,
            "group": 4,
            "mini_batches": 2,
            "steps": 3,
            "staleness": 1,
            "top_k": 5,
            "save_every": 1,
        }
    },
    "methods": {"dppo_topk_kl": {}, "drpo_small": {"method": "drpo", "options": {"delta": 0.15}}},
    "grid": [{"settings": ["T"], "seeds": [0, 1]}],
    "scoring": {"repeats": 4, "problems": 8},
}


def own_model(config: dict[str, Any], tiny_world: Any, **changes: Any) -> None:
    """Replace the toy world by a user's model, data and reward."""
    setting = config["settings"]["T"]
    for name in ("world", "model"):
        del setting[name]
    setting |= {
        "model_path": str(tiny_world.model),
        "train_files": [str(tiny_world.train)],
        "val_files": [str(tiny_world.test)],
        "reward_function": {"path": "workflows/world/reward.py"},
        "prompt_length": 5,
        "response_length": 4,
        **changes,
    }


@dataclass
class Project:
    """A copy of the project in a folder of its own."""

    root: Path

    @classmethod
    def copied(cls, root: Path) -> Project:
        """What a pipeline needs of this project, in an existing folder."""
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, root / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(source, root / name)
        return cls(root)

    @property
    def results(self) -> Path:
        return self.root / "results" / "tiny"

    def write_config(self, config: dict[str, Any], name: str = "tiny.yaml") -> Path:
        path = self.root / name
        path.write_text(yaml.safe_dump(config, sort_keys=False))
        return path

    def command(self, *arguments: str, config: str = "tiny.yaml", cores: int = 2) -> list[str]:
        command = [sys.executable, "-m", "snakemake", *arguments, "--cores", str(cores), "--configfile", config]
        # A changed copy of a configuration may go on in its tier's results if the command line says so.
        tier = yaml.safe_load((self.root / config).read_text()).get("tier")
        return command if tier == Path(config).stem else [*command, "--config", f"tier={tier}"]

    def environment(self, **more: str) -> dict[str, str]:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        return {**os.environ, "PATH": path, "PYTHONPATH": str(self.root), "OMP_NUM_THREADS": "1", **more}

    def snakemake(self, *arguments: str, config: str = "tiny.yaml", cores: int = 2, **more: str) -> str:
        """Run Snakemake, return its output. Raises AssertionError with the output where it fails."""
        done = self.attempt(*arguments, config=config, cores=cores, **more)
        assert done.returncode == 0, done.stdout
        return done.stdout

    def attempt(
        self, *arguments: str, config: str = "tiny.yaml", cores: int = 2, **more: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments, config=config, cores=cores),
            cwd=self.root,
            env=self.environment(**more),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=500,
        )

    def planned(self, *arguments: str, config: str = "tiny.yaml") -> dict[str, int]:
        """Jobs per rule that a dry run lists; empty when nothing is to be done."""
        return self.jobs(self.snakemake("--dry-run", *arguments, config=config))

    @staticmethod
    def jobs(out: str) -> dict[str, int]:
        """Jobs per rule that Snakemake's output lists."""
        if "Nothing to be done" in out:
            return {}
        table = out.split("Job stats:")[1].split("total")[0].splitlines()
        rows = [line.split() for line in table if len(line.split()) == 2 and line.split()[1].isdigit()]
        return {rule: int(count) for rule, count in rows}

    def run_config(self, method: str, seed: int) -> str:
        return f"setting~T/variant~{method}/seed~{seed}"
