"""Check an installation: every line is one thing that a run depends on, with what to do where it is not well."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator

MINIMUM_DISK_GB = 3.0
EXTRAS = {
    "dev": ("pytest", "hypothesis", "ruff", "mypy", "snakefmt"),
    "gpu": ("vllm", "flash_attn"),
    "wandb": ("wandb",),
}

Finding = tuple[bool, str]


def _python() -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    yield (3, 11) <= sys.version_info < (3, 13), f"Python {version} (needed: 3.11 or 3.12)"


def _versions() -> Iterator[Finding]:
    from methods.backend.run.versions import outside_tested_range

    problems = outside_tested_range()
    yield not problems, "; ".join(problems) or "package versions are in the tested range"


def _plugin() -> Iterator[Finding]:
    """In a fresh interpreter with what a worker gets: an import in this one would prove nothing."""
    program = (
        "import verl; from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY as losses; "
        "from verl.plugin.platform import get_platform; from methods import registry; "
        "from methods.backend.loss import loss_name; "
        "missing = [n for n in registry.names() if loss_name(n) not in losses]; "
        "print(get_platform().device_name, len(registry.names()), ','.join(missing))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    if done.returncode:
        yield False, f"verl does not load: {done.stderr.strip().splitlines()[-1]}"
        return
    device, count, *missing = done.stdout.split()
    yield (
        not missing,
        (
            f"verl loads the plugin: device {device}, {count} methods registered"
            if not missing
            else f"verl does not know {missing[0]}: set VERL_USE_EXTERNAL_MODULES=methods.backend.plugin"
        ),
    )


def _accelerators() -> Iterator[Finding]:
    """A driver may be there without a torch that can use it, and the other way round; neither is chosen by itself."""
    import torch

    program = shutil.which("nvidia-smi")
    listed = _first_line([program, "-L"]) if program else ""
    found = re.match(r"GPU \d+: (.*?)(?: \(UUID|$)", listed)
    driver = f"{found[1] if found else 'no GPU listed'} ({program})" if program else "none"
    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "built for the CPU"
    chosen = os.environ.get("VERL_PLATFORM")
    yield True, f"NVIDIA driver: {driver}; torch {torch.__version__} ({build})"
    yield (
        chosen == "cpu",
        "trainings run on the CPU (VERL_PLATFORM=cpu)"
        if chosen == "cpu"
        else f"VERL_PLATFORM={chosen}: unset it, trainings of this release run on the CPU",
    )


def _first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.partition("\n")[0] if done.returncode == 0 else ""


def _threads() -> Iterator[Finding]:
    threads = os.environ.get("OMP_NUM_THREADS")
    yield (
        threads == "1",
        f"OMP_NUM_THREADS={threads} (1: two threads beside another busy process wait for each other at every barrier)",
    )
    yield True, f"{os.cpu_count()} cores: run snakemake with --cores {os.cpu_count()} at most"


def _disk() -> Iterator[Finding]:
    free = shutil.disk_usage(".").free / 1e9
    yield free >= MINIMUM_DISK_GB, f"{free:.0f} GB free here (needed: {MINIMUM_DISK_GB:.0f})"


def _extras() -> Iterator[Finding]:
    for extra, modules in EXTRAS.items():
        missing = [name for name in modules if importlib.util.find_spec(name) is None]
        state = "installed" if not missing else f"not installed ({', '.join(missing)} missing)"
        yield True, f"extra [{extra}]: {state}"


CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    _python,
    _versions,
    _accelerators,
    _plugin,
    _threads,
    _disk,
    _extras,
)


def examine() -> int:
    """Print all findings; 0 when nothing is wrong, 1 otherwise."""
    wrong = 0
    for check in CHECKS:
        for good, text in check():
            print(f"{'ok ' if good else 'BAD'}  {text}", flush=True)
            wrong += not good
    return 1 if wrong else 0
