"""Own lm-eval tasks, one folder each. `TASKS_DIR` is what lm-eval calls an include path."""

from __future__ import annotations

from pathlib import Path

TASKS_DIR = Path(__file__).resolve().parent
