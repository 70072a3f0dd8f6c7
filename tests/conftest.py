"""Fixtures shared by all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

from fedakd.engine.processes import Workers

collect_ignore_glob = ["*/conftest.py"]  # they hold no doctests, and share a name
settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def two_workers() -> Iterator[Workers]:
    """Two processes that serve many engines, so that tests pay for starting them once."""
    workers = Workers(2)
    yield workers
    workers.close()
