"""The simulation of coverage: what it counts, what it marks, and that its table leaves no design out."""

from __future__ import annotations

import importlib.util
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def coverage() -> Iterator[ModuleType]:
    """The script, under a name that is not that of the package for measuring tests."""
    sys.path.insert(0, str(ROOT / "benchmarks"))  # where it finds its designs
    spec = importlib.util.spec_from_file_location("coverage_script", ROOT / "benchmarks" / "coverage.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    yield script
    sys.path.remove(str(ROOT / "benchmarks"))


def test_coverage_counts_the_intervals_that_hold_the_truth(coverage: ModuleType) -> None:
    found = [((0.0, 0.1), 0.05), ((0.0, 0.1), 0.2), ((math.nan, math.nan), 0.0), ((-0.3, 0.0), 0.0)]
    assert coverage.measured(found) == pytest.approx((0.5, 0.5 / 3))


@pytest.mark.parametrize(("share", "missed"), [(0.92, True), (0.93, False), (0.97, False), (0.98, True)])
def test_a_missed_target_is_marked(coverage: ModuleType, share: float, missed: bool) -> None:
    result = coverage.Result("gain", "a design", share, 0.1, 0.93, 0.97)
    assert result.missed is missed
    text = coverage.markdown({"means": [result]}, 100, " --repeats 100")
    assert text.count("MISSED |") == missed
    assert f"{int(missed)} of 1 targets are missed" in text


@pytest.mark.parametrize("part", ["means", "clients"])
def test_a_part_repeats(coverage: ModuleType, part: str) -> None:
    once, again = (next(coverage.PARTS[part](3)) for _ in range(2))
    assert once == again


def test_the_table_holds_every_design_and_marks_every_miss(coverage: ModuleType) -> None:
    text = (ROOT / "docs" / "coverage.md").read_text()
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in text.splitlines() if row[:2] == "| "]
    shown = {(row[0], row[1]): row for row in rows}
    expected = [one for part in coverage.PARTS.values() for one in part(1)]
    assert {(one.estimand, str(one.design)) for one in expected} == shown.keys() - {("estimated", "design")}
    for one in expected:
        *_, share, _, mark = shown[one.estimand, str(one.design)]
        assert (mark == "MISSED") == one._replace(coverage=float(share) / 100).missed
    assert re.search(r"in 4,000 simulated repetitions", text)
