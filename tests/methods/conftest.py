"""Which files of laws train for more than a few seconds in all."""

from __future__ import annotations

from pathlib import Path

import pytest

from least_squares import FEDERATIONS

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


@pytest.fixture(params=FEDERATIONS, ids=len)
def sizes(request: pytest.FixtureRequest) -> tuple[int, ...]:
    """Two clients, and ten; tests that need others have them as parameters of their own."""
    return request.param  # type: ignore[no-any-return]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == HERE and item.path.stem.removeprefix("test_") in LONG:
            item.add_marker(pytest.mark.slow)
