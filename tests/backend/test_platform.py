"""definition: the CPU is what trains unless asked otherwise, also where a driver of an accelerator is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from verl.plugin.platform import platform_manager

from methods.backend import environment, launch, platform
from methods.backend.ray import launch as ray_launch
from methods.backend.setting import ConfigError


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An `nvidia-smi` that finds a GPU, first on PATH; VERL_PLATFORM is not set."""
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'GPU 0: Imaginary H900 (UUID: GPU-0)'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("VERL_PLATFORM", raising=False)
    return program


def test_a_driver_chooses_nothing_for_our_commands(driver: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """verl alone would take it; with what our commands set, and Ray's processes inherit, it does not."""
    assert platform_manager._detect_platform_name() == "nvidia"
    monkeypatch.setenv("VERL_PLATFORM", environment.DEFAULTS["VERL_PLATFORM"])
    for name in ("PYTHONPATH", "VERL_USE_EXTERNAL_MODULES"):
        monkeypatch.setenv(name, os.environ.get(name, ""))  # so that both are put back
    ray_launch.prepare_environment()
    assert platform_manager._detect_platform_name() == platform.NAME == os.environ["VERL_PLATFORM"]


def test_doctor_says_what_was_found_and_what_was_chosen(driver: Path) -> None:
    """A process of its own; what it says of verl comes from a further one, as a worker is."""
    done = subprocess.run([sys.executable, "-m", "workflows", "doctor"], capture_output=True, text=True, timeout=240)
    assert f"driver: Imaginary H900 ({driver})" in done.stdout, done.stderr
    assert f"torch {torch.__version__}" in done.stdout and "trainings run on the CPU" in done.stdout
    assert "device cpu" in done.stdout


def test_another_platform_is_refused_by_name(
    tiny_world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("VERL_PLATFORM", "nvidia")
    with pytest.raises(ConfigError, match=r"^VERL_PLATFORM = 'nvidia': allowed is cpu"):
        launch.train(tiny_world.run_config(tmp_path / "run"))
