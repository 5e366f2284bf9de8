"""Which records a study takes: find_records below folders, every run once, the runs of one setting all of one kind."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eval.files import InputError
from eval.tokens import records

FILE = "tokens.parquet"
# The rest of an identity must agree within a group.
SHARED = tuple(name for name in records.IDENTITY if name not in records.RUN)


def find_records(paths: Sequence[Path]) -> list[Path]:
    """The given records, and all in or below given folders. Raises InputError where a folder has none."""
    records: list[Path] = []
    for path in paths:
        below = sorted(path.rglob(FILE)) if path.is_dir() else [path]
        if not below:
            raise InputError(f"{path}: no {FILE} in this folder")
        records += below
    return list(dict.fromkeys(records))


def runs(paths: Sequence[Path]) -> dict[Path, dict[str, Any]]:
    """What the run of each record was, sorted by setting and seed, so that no table depends on how files are named.

    Raises InputError for two records of one run, and for runs of one setting that differ in more than the seed: a mean
    over them would be one of nothing.
    """
    identities = {path: records.identity(path) for path in paths}
    order = sorted(identities, key=lambda path: (*(identities[path][name] for name in records.RUN), str(path)))
    first: dict[tuple[Any, ...], Path] = {}
    for path in order:
        group = tuple(identities[path][name] for name in records.GROUP)
        run = (*group, identities[path]["seed"])
        named = ", ".join(f"{name} {value!r}" for name, value in zip(records.RUN, run, strict=True))
        if run in first:
            raise InputError(f"{path} and {first[run]}: two records of one run ({named}); allowed is one")
        like = first.setdefault(group, path)
        for name in SHARED:
            if identities[path][name] != identities[like][name]:
                raise InputError(
                    f"{path}: {name} = {identities[path][name]!r}, but {identities[like][name]!r} in {like}, "
                    f"which is of the same setting ({named.rsplit(',', 1)[0]}); only the seed may differ"
                )
        first[run] = path
    return {path: identities[path] for path in order}
