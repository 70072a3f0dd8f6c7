"""Which files of laws train for more than a few seconds in all."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent
LONG = {
    "quadratic",
    "quadratic_distilled",
    "feddc",
    "fedsac",
    "fedsac_allocation",
    "pfedck",
    "fedas",
    "fedave",
    "reward",
    "matrix",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == HERE and item.path.stem.removeprefix("test_") in LONG:
            item.add_marker(pytest.mark.slow)
