"""Sampling settings that contradict themselves, or that leave a choice to a library, are refused."""

from __future__ import annotations

from typing import Any

import pytest

from eval.files import InputError
from eval.sampling import check_sampling

SAMPLED = {"do_sample": True, "temperature": 1.0, "top_p": 1.0, "top_k": 0, "max_gen_toks": 8, "until": []}


def test_explicit_settings_pass() -> None:
    """Full sampling settings; greedy with one repeat."""
    check_sampling(SAMPLED, 16, "t")
    check_sampling({"do_sample": False, "max_gen_toks": 8}, 1, "t")
    check_sampling({"do_sample": False, "temperature": 0.0, "max_gen_toks": 8}, 1, "t")


@pytest.mark.parametrize(
    ("change", "repeats", "message"),
    [
        ({"do_sample": False, "temperature": 0.8}, 1, "do_sample is false but temperature is 0.8"),
        ({"do_sample": False, "temperature": None}, 16, "all 16 repeats would be equal"),
        ({"do_sample": None}, 16, "do_sample must be true or false"),
        ({"top_k": None}, 16, r"\['top_k'\] is not given"),
        ({"temperature": None, "top_p": None}, 16, r"\['temperature', 'top_p'\] is not given"),
        ({"temperature": 0.0}, 16, "must be > 0"),
        ({"max_new_tokens": 9}, 16, "exactly one"),
    ],
)
def test_contradictions(change: dict[str, Any], repeats: int, message: str) -> None:
    """The message names the task and the setting."""
    with pytest.raises(InputError, match=f"task t: generation_kwargs: .*{message}"):
        check_sampling({**SAMPLED, **change}, repeats, "t")
