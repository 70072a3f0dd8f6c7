"""The figures of the paper that are drawn from a comparison's cells."""

from __future__ import annotations

from collections.abc import Callable

from fedakd.compare.results import Results
from fedakd.compare.schema import Comparison
from fedakd.errors import PlanError
from fedakd.paper.contributions import TELLING, draw_contributions
from fedakd.paper.figures import draw_costs, draw_losses

LOSSES = ("fedavg", "fedakd")  # those the paper's Figure 3b shows


def draw(results: Results) -> str:
    """Draws what the comparison was made for into its folder, and says what; nothing for a table."""
    return DRAWN[results.table](results) if results.table in DRAWN else ""


def check(name: str, asked: Comparison) -> None:
    """What could not be drawn in the end is refused before anything is computed."""
    if name == "figure1" and not any(method.startswith(TELLING) for method in asked.methods):
        known = ", ".join(TELLING)
        raise PlanError(f"figure1 needs a method that says what clients contributed: one of {known}")


def _figure1(results: Results) -> str:
    draw_contributions(results, results.folder / "figure1")
    return "figure1"


def _figure3(results: Results) -> str:
    there = {method for one in results.settings for method in one.plan.methods}
    draw_costs(results, results.folder / "figure3a")
    draw_losses(results, results.folder / "figure3b", [one for one in LOSSES if one in there] or None)
    return "figure3a, figure3b"


DRAWN: dict[str, Callable[[Results], str]] = {"figure1": _figure1, "figure3": _figure3}
