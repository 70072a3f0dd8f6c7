"""What came of a run: one row for each method and view, over all seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from fedakd.experiment import Cell
from fedakd.fairness import Fairness, Spread, assess, over_seeds
from fedakd.plan import REFERENCE, Plan
from fedakd.rounds import failing
from fedakd.verdict import verdict

NAMES = {"standalone": "Standalone", "fedavg": "FedAvg", "fedakd": "FedAKD"}
ACCURACY = ("method", "average", "max", "min", "gain", "worse off")
FAIRNESS = ("method", "CF", "95 % interval", "Spearman", "Jain", "Gini", "passes")


@dataclass(frozen=True)
class Row:
    """One method seen through one of its models."""

    method: str
    view: str
    judged: bool  # the view the method is judged by
    per_seed: list[Fairness]
    accuracies: list[list[float]]  # one list a seed, one number a client
    rounds: list[int]
    gradients: list[int]  # sample-gradients of the whole run, one a seed
    train_rows: list[int]
    bytes_up: list[int]
    bytes_down: list[int]
    failures: list[str]
    stopped: list[str]
    notices: list[str]

    @property
    def troubles(self) -> list[str]:
        return [*self.stopped, *self.notices, *shortened(self.failures)]

    @property
    def label(self) -> str:
        name = next(
            (shown + self.method[len(n) :] for n, shown in NAMES.items() if self.method.startswith(n)),
            self.method,
        )
        return name if self.method == REFERENCE else f"{name} ({self.view})"

    @property
    def passes(self) -> float:
        """How often the run went over the training rows, computing gradients, on average over seeds."""
        return sum(self.gradients) / max(sum(self.train_rows), 1)

    @property
    def spread(self) -> dict[str, Spread]:
        return over_seeds(self.per_seed)

    @property
    def failed(self) -> bool:
        return all(one.clients == 0 for one in self.per_seed)

    @property
    def verdict(self) -> str:
        if self.failed:
            return f"{self.label}: failed: no client could train (see below)."
        trained = [one for one in self.per_seed if one.clients]
        lost = len(self.per_seed) - len(trained)
        remark = f" In {lost} of {len(self.per_seed)} seeds no client could train." if lost else ""
        return verdict(self.label, trained) + remark

    def to_dict(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "view": self.view,
            "judged": self.judged,
            "label": self.label,
            "verdict": self.verdict,
            "over_seeds": {name: one.to_dict() for name, one in self.spread.items()},
            "per_seed": [one.to_dict() for one in self.per_seed],
            "accuracies": [[None if math.isnan(one) else one for one in own] for own in self.accuracies],
            "rounds": self.rounds,
            "gradients": self.gradients,
            "passes": self.passes,
            "bytes_up": self.bytes_up,
            "bytes_down": self.bytes_down,
            "failures": self.failures,
            "stopped": self.stopped,
            "notices": self.notices,
        }


def rows_of(cells: Sequence[Cell], preset: str = "tuned") -> list[Row]:
    """The rows of a table, in the order of the methods, each with all its views."""
    by_method: dict[str, list[Cell]] = {}
    for cell in cells:
        by_method.setdefault(cell.method, []).append(cell)
    reference = {cell.seed: accuracies(cell, "personal") for cell in by_method[REFERENCE]}
    return [
        row_of(own, view, view == judged_view(own[0], preset), reference)
        for own in by_method.values()
        for view in views_of(own[0])
    ]


def judged_view(cell: Cell, preset: str) -> str:
    """A method's first view; the published code scores the global model wherever there is one."""
    views = views_of(cell)
    return "global" if preset == "released" and "global" in views else views[0]


def row_of(cells: list[Cell], view: str, judged: bool, reference: dict[int, list[float]]) -> Row:
    return Row(
        method=cells[0].method,
        view=view,
        judged=judged,
        per_seed=[assessed(cell, view, reference[cell.seed]) for cell in cells],
        accuracies=[accuracies(cell, view) for cell in cells],
        rounds=[len(cell.rounds) for cell in cells],
        gradients=[sum(r.gradients for r in cell.rounds) for cell in cells],
        train_rows=[cell.train_rows for cell in cells],
        bytes_up=[sum(r.bytes_up for r in cell.rounds) for cell in cells],
        bytes_down=[sum(r.bytes_down for r in cell.rounds) for cell in cells],
        failures=[f"seed {c.seed}: {why}" for c in cells for r in c.rounds for why in r.failures.values()],
        stopped=[f"seed {c.seed}: {c.stopped}" for c in cells if c.stopped],
        notices=[f"seed {c.seed}: {notice}" for c in cells for notice in c.notices],
    )


def assessed(cell: Cell, view: str, reference: list[float]) -> Fairness:
    """The fairness of one run; if nobody has an accuracy there is none, and without a reference no gains."""
    own = accuracies(cell, view)
    if all(map(math.isnan, own)):
        return Fairness(math.nan, math.nan, math.nan, clients=0, failed=len(own))
    comparable = any(not math.isnan(a + b) for a, b in zip(own, reference, strict=True))
    return assess(reference if comparable else None, own, cell.distinct_test_rows, seed=cell.seed)


def views_of(cell: Cell) -> list[str]:
    return [
        measure.removesuffix("/accuracy")
        for measure in cell.rounds[-1].scores
        if measure.endswith("/accuracy")
    ]


def accuracies(cell: Cell, view: str) -> list[float]:
    """Each client's accuracy after the last round; nan for a client that could not train its own model.

    A client whose training fails can still deploy the global model, unless training fails everywhere.
    """
    clients = range(len(cell.distinct_test_rows))
    scores, broken = cell.rounds[-1].scores[f"{view}/accuracy"], failing(cell.rounds)
    lost = broken if view == "personal" or len(broken) == len(clients) else {}
    return [math.nan if client in lost else scores.get(client, math.nan) for client in clients]


def shortened(failures: list[str], most: int = 10) -> list[str]:
    """A client that fails in every round need not be told of in every round."""
    more = len(failures) - most
    return failures[:most] + ([f"and {more} more failures, in summary.json"] if more > 0 else [])


def to_dict(plan: Plan, rows: Sequence[Row], warnings: Sequence[str]) -> dict[str, Any]:
    return {"plan": plan.model_dump(), "warnings": list(warnings), "rows": [row.to_dict() for row in rows]}


def accuracy_line(row: Row) -> list[str]:
    """Accuracies and gains in percentage points, as text."""
    if row.failed:
        return [row.label, "failed", *[""] * 4]
    spread = row.spread
    levels = [points(spread[name]) for name in ("average", "maximum", "minimum")]
    if row.method == REFERENCE:
        return [row.label, *levels, "", ""]
    compared = [one for one in row.per_seed if one.worse_off is not None]
    worse, clients = sum(one.worse_off or 0 for one in compared), sum(one.clients for one in compared)
    told = f"{worse} of {clients}" if compared else "unknown"
    return [row.label, *levels, points(spread["mean_gain"], sign=True), told]


def fairness_line(row: Row) -> list[str]:
    """Means over seeds, as text."""
    passes = plain(row.passes, 1)
    if row.method == REFERENCE or row.failed:
        return [row.label, *[""] * 5, passes]
    cf, low, high, rank, jain, gini = (
        row.spread[name].mean for name in ("cf", "cf_low", "cf_high", "spearman", "jain", "gini")
    )
    interval = "undefined" if math.isnan(low) else f"{low:.0f} to {high:.0f}"
    return [row.label, plain(cf, 1), interval, plain(rank, 2), plain(jain, 2), plain(gini, 2), passes]


def client_table(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """What each client gains by joining, method by method: the answer to "does it pay for us?"."""
    reference, *others = rows
    headers = ["client", "alone", *(row.label for row in others)]
    alone = [fmean(of_client) for of_client in zip(*reference.accuracies, strict=True)]
    cells = [[gain_of(row.per_seed, k) for row in others] for k in range(len(alone))]
    return headers, [[str(k), plain(100 * alone[k], 1), *own] for k, own in enumerate(cells)]


def gain_of(per_seed: Sequence[Fairness], client: int) -> str:
    """One seed: the gain with its 95 % interval; several: mean and standard deviation."""
    gains = [one.gains[client] if one.gains else math.nan for one in per_seed]
    if math.isnan(sum(gains)):
        return "unknown"
    if len(per_seed) > 1:
        return points(Spread(fmean(gains), stdev(gains), len(gains)), sign=True)
    low, high = (100 * end[client] for end in (per_seed[0].gain_low, per_seed[0].gain_high))
    return f"{100 * gains[0]:+.1f} ({low:.1f} to {high:.1f})"


def points(spread: Spread, sign: bool = False) -> str:
    """A fraction as percentage points, with its standard deviation over seeds."""
    if math.isnan(spread.mean):
        return "unknown"
    shown = f"{100 * spread.mean:{'+' if sign else ''}.1f}"
    return shown if math.isnan(spread.std) else f"{shown} ± {100 * spread.std:.1f}"


def plain(value: float, digits: int) -> str:
    return "undefined" if math.isnan(value) else f"{value:.{digits}f}"


def markdown(plan: Plan, rows: Sequence[Row], warnings: Sequence[str]) -> str:
    troubles = [f"- {row.label}: {text}" for row in rows if row.judged for text in row.troubles]
    parts = [
        f"# {plan.title}",
        "\n".join(f"**{warning}**" for warning in warnings),
        markdown_table(ACCURACY, [accuracy_line(row) for row in rows]),
        markdown_table(FAIRNESS, [fairness_line(row) for row in rows]),
        NOTE,
        f"{CLIENTS}:",
        markdown_table(*client_table(rows)),
        "\n".join(f"- {row.verdict}" for row in rows),
        "\n".join(["## What went wrong", "", *troubles]) if troubles else "",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def markdown_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = (headers, ["---"] * len(headers), *rows)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


CLIENTS = "Accuracy alone, and what each client gains by joining"
NOTE = (
    "Accuracies and gains in percentage points, mean ± standard deviation over seeds. CF is 100 times the "
    "Pearson correlation with Standalone, so it is read together with the gains. "
    "Passes: gradients computed per training row."
)
