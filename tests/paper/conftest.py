"""One small comparison for the tests of tables and figures: two partitions, seven methods, two seeds."""

from __future__ import annotations

import pytest
from small_comparison import setting_of

from fedakd.compare.results import Results


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("comparison")
    settings = [setting_of(folder / name, partition=name) for name in ("pow", "ics(2)")]
    return Results("digits", tuple(settings), folder, "fedakd compare digits")
