"""The stale batch that several of this folder's tests look at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.backend.engine_batch import EngineBatch


@pytest.fixture(scope="session")
def engine_batch(tiny_world: Any, tmp_path_factory: pytest.TempPathFactory) -> EngineBatch:
    """Built once; about two seconds."""
    from tests.backend import engine_batch

    return engine_batch.build(tiny_world, tmp_path_factory.mktemp("engine"))
