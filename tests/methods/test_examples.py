"""Claim: property tests draw the same examples every time, here as in CI, unless the environment asks for new ones.

Not covered: settings that a test file gives itself (it would have to repeat `derandomize`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from tests.methods.helpers import batch_properties, measure_properties, properties

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("chosen", [settings(), properties, batch_properties, measure_properties])
def test_examples_are_drawn_as_the_profile_says(chosen: settings) -> None:
    new = os.environ.get("TETHER_NEW_EXAMPLES") == "1"
    assert chosen.derandomize is not new
    assert chosen.database is None and chosen.deadline is None and chosen.print_blob is new


def test_the_switch_asks_for_new_ones() -> None:
    program = (
        "import runpy; runpy.run_path('tests/conftest.py'); from hypothesis import settings; "
        "print(settings().derandomize, settings().print_blob)"
    )
    for value, want in (("1", "False True"), ("0", "True False"), ("", "True False")):
        environment = {**os.environ, "TETHER_NEW_EXAMPLES": value}
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, env=environment, cwd=ROOT, timeout=60
        )
        assert done.stdout.split() == want.split(), done.stderr
