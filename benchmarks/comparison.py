"""Cells side by side against clients side by side: the same comparison both ways, and both to the same bytes.

    python benchmarks/comparison.py                            digits, 8 cells
    python benchmarks/comparison.py --dataset fashion-mnist --scale 0.05

Both ways are measured in turn, --repeats times, so that a noisy machine is noisy for both; the median counts.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import get_args

from fedakd.compare import Comparison, Store, comparison, jobs_of
from fedakd.compare.crew import Crew, Parallel
from fedakd.experiment import Observer


class Nobody:
    """A foreman who looks away."""

    @property
    def watching(self) -> Observer:
        return self

    def __getattr__(self, name: str) -> object:
        return lambda *_: None


def asked(options: argparse.Namespace) -> Comparison:
    axes = {
        "datasets": [options.dataset],
        "partitions": ["ics(2)"],
        "methods": ["fedavg", "fedprox", "fedakd"],
    }
    size = {"seeds": 2, "rounds": options.rounds, "scale": options.scale, "judge_every": options.rounds}
    return comparison({"title": "benchmark", **axes, **size}, "benchmark")


def seconds(plan: Comparison, way: str) -> tuple[float, dict[str, bytes]]:
    """How long one way takes, from an empty folder, and what it wrote."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        Crew(Store(Path(folder)), Nobody(), parallel=way).work(jobs_of(plan))  # type: ignore[arg-type]
        took = time.perf_counter() - began
        rounds = Path(folder).glob("cells/*/rounds.jsonl")
        return took, {path.parent.name: path.read_bytes() for path in rounds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--dataset", default="digits")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    ways = [way for way in get_args(Parallel) if way != "auto"]
    found = [{way: seconds(asked(options), way) for way in ways} for _ in range(options.repeats)]
    assert all(one["cells"][1] == one["clients"][1] for one in found), "both ways must write the same numbers"
    ratio = statistics.median(one["clients"][0] / one["cells"][0] for one in found)
    for way in ways:
        print(f"{way} side by side: {statistics.median(one[way][0] for one in found):.1f} s")
    print(f"clients side by side take {ratio:.2f} times as long as cells")


if __name__ == "__main__":
    main()
