"""Which sampling settings a score may be made with: explicit ones, free of contradictions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eval.files import InputError

LENGTH_KEYS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")


def check_sampling(settings: Mapping[str, Any], repeats: int, task: str) -> None:
    """Refuse generation settings that say two things, or leave the choice to a library's default.

    When sampling, temperature, top_p and top_k must all be given: transformers applies top_k = 50 silently.
    Without sampling no temperature may be given, and repeats would all be equal.
    """
    name = f"task {task}: generation_kwargs"
    do_sample, temperature = settings.get("do_sample"), float(settings.get("temperature") or 0.0)
    if not isinstance(do_sample, bool):
        raise InputError(f"{name}: do_sample must be true or false, got {do_sample!r}")
    if do_sample:
        missing = [key for key in ("temperature", "top_p", "top_k") if settings.get(key) is None]
        if missing:
            raise InputError(f"{name}: do_sample is true but {missing} is not given (top_k 0 means no cut)")
        if not temperature > 0:
            raise InputError(f"{name}: do_sample is true but temperature is {temperature}; it must be > 0")
    elif temperature:
        raise InputError(f"{name}: do_sample is false but temperature is {temperature}; remove one of them")
    elif repeats > 1:
        raise InputError(f"{name}: do_sample is false, so all {repeats} repeats would be equal; use repeats 1")
    lengths = [key for key in LENGTH_KEYS if key in settings]
    if len(lengths) != 1:
        raise InputError(f"{name}: give exactly one of {list(LENGTH_KEYS)}, got {lengths}")
