"""What came of a run: one row for each method and view, over all seeds."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from fedakd.audit import Audit
from fedakd.convergence import Convergence, convergence, mean_curve, score_curve
from fedakd.experiment import Cell
from fedakd.fairness import Fairness, Spread, assess, over_seeds
from fedakd.intervals import Paired
from fedakd.methods import METHODS
from fedakd.plan import CONVERGED, REFERENCE, SGD_REFERENCE, Plan, Reference, is_reference
from fedakd.verdict import verdict

UNKNOWN_CONVERGENCE = Convergence("not known", math.nan, 0)


@dataclass(frozen=True)
class Row:
    """One method seen through one of its models."""

    method: str
    view: str
    judged: bool  # the view the method is judged by
    seeds: list[int]
    per_seed: list[Fairness]  # gains are against the reference of the plan, CF against the equal budget
    accuracies: list[list[float]]  # one list a seed, one number a client
    rounds: list[int]
    gradients: list[int]  # sample-gradients of the whole run, one a seed
    train_rows: list[int]
    bytes_up: list[int]
    bytes_down: list[int]
    failures: list[str]
    stopped: list[str]
    notices: list[str]
    convergence: Convergence = UNKNOWN_CONVERGENCE
    reference: Reference = "equal-budget"  # that gains are against
    reference_convergence: Convergence = UNKNOWN_CONVERGENCE
    reference_passes: float = math.nan
    few_test_rows: frozenset[int] = frozenset()  # clients judged on too few effective rows in some seed

    @property
    def marks(self) -> str:
        """~: not converged; !: clients are judged on fewer effective test rows than the rule asks."""
        climbing = self.convergence.state == "not converged"
        return "~" * climbing + "!" * bool(self.few_test_rows)

    @property
    def troubles(self) -> list[str]:
        return [*self.stopped, *self.notices, *shortened(self.failures)]

    @property
    def label(self) -> str:
        return named(self.method) if is_reference(self.method) else f"{named(self.method)} ({self.view})"

    @property
    def passes(self) -> float:
        """How often the run went over the training rows, computing gradients, on average over seeds."""
        return sum(self.gradients) / max(sum(self.train_rows), 1)

    @cached_property
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
        if is_reference(self.method) and self.method != REFERENCE:
            return f"{self.label}: a further reference, in which every client trains alone."
        over = " over training alone to convergence" if self.reference == "converged" else ""
        passes = None if math.isnan(self.reference_passes) else (self.passes, self.reference_passes)
        sentence = verdict(self.label, trained, unconverged=self.unconverged, passes=passes, over=over)
        return sentence + remark

    @property
    def unconverged(self) -> str | None:
        """Why there is no verdict yet: this run, or the one it is compared with, was still learning."""
        if self.convergence.state != "converged":
            return self.convergence.sentence()
        if self.reference == "equal-budget" and self.reference_convergence.state != "converged":
            return f"{named(REFERENCE)}: {self.reference_convergence.sentence()}"
        return None

    def to_dict(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "view": self.view,
            "judged": self.judged,
            "seeds": self.seeds,
            "label": self.label,
            "verdict": self.verdict,
            "reference": self.reference,
            "convergence": self.convergence.to_dict(),
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


def named(text: str) -> str:
    """A method's name as its authors write it, with whatever the text says besides.

    >>> named("pfedck(clusters=2)"), named("fedakd-all-data")
    ('pFedCK(clusters=2)', 'FedAKD-all-data')
    """
    name = re.split(r"[-(]", text, maxsplit=1)[0]
    method = type(METHODS[name])
    return (method.title or method.__name__) + text[len(name) :]


def rows_of(cells: Sequence[Cell], preset: str = "tuned", reference: Reference = "equal-budget") -> list[Row]:
    """The rows of a table, in the order of the methods, each with all its views."""
    by_method: dict[str, list[Cell]] = {}
    for cell in cells:
        by_method.setdefault(cell.method, []).append(cell)
    references = References(
        {name: {cell.seed: cell for cell in by_method.get(name, ())} for name in REFERENCES},
        reference if by_method.get(CONVERGED) else "equal-budget",
    )
    return [
        row_of(own, view, view == judged_view(own[0], preset), references)
        for own in by_method.values()
        for view in views_of(own[0])
    ]


REFERENCES = (REFERENCE, CONVERGED, SGD_REFERENCE)


@dataclass(frozen=True)
class References:
    """The cells of clients that trained alone, by method and seed, and which of them gains are against."""

    cells: dict[str, dict[int, Cell]]
    first: Reference

    def of(self, name: str, seed: int) -> Cell | None:
        return self.cells[name].get(seed)

    def compared(self, cell: Cell) -> Cell:
        """The cell that the gains of this one are against."""
        converged = self.of(CONVERGED, cell.seed) if self.first == "converged" else None
        return converged or self.cells[REFERENCE][cell.seed]


def reference_row(rows: Sequence[Row]) -> Row:
    """The row that gains are against."""
    name = CONVERGED if rows[0].reference == "converged" else REFERENCE
    return next(row for row in rows if row.method == name)


def judged_view(cell: Cell, preset: str) -> str:
    """A method's first view, or the first that is not shared where all clients have the same test rows.

    The published code of FedAKD scores the global model.
    """
    views = views_of(cell)
    if preset == "released" and cell.method.startswith("fedakd"):
        return "global"
    own = [view for view in views if view != "global"]
    return own[0] if own and cell.evaluation == "global" else views[0]


def row_of(cells: list[Cell], view: str, judged: bool, references: References) -> Row:
    return Row(
        method=cells[0].method,
        view=view,
        judged=judged,
        seeds=[cell.seed for cell in cells],
        per_seed=[assessed(cell, view, references) for cell in cells],
        accuracies=[accuracies(cell, view) for cell in cells],
        rounds=[len(cell.rounds) for cell in cells],
        gradients=[sum(r.gradients for r in cell.rounds) for cell in cells],
        train_rows=[cell.train_rows for cell in cells],
        bytes_up=[sum(r.bytes_up for r in cell.rounds) for cell in cells],
        bytes_down=[sum(r.bytes_down for r in cell.rounds) for cell in cells],
        failures=[f"seed {c.seed}: {why}" for c in cells for r in c.rounds for why in r.failures.values()],
        stopped=[f"seed {c.seed}: {c.stopped}" for c in cells if c.stopped],
        notices=[f"seed {c.seed}: {notice}" for c in cells for notice in c.notices],
        convergence=converged(cells, view),
        reference=references.first,
        reference_passes=passes_of([references.compared(cell) for cell in cells]),
        few_test_rows=frozenset(client for cell in cells for client in cell.few_test_rows),
        reference_convergence=converged(list(references.cells[REFERENCE].values()), "personal"),
    )


def passes_of(cells: Sequence[Cell]) -> float:
    """How often these runs went over their training rows, computing gradients."""
    gradients = sum(record.gradients for cell in cells for record in cell.rounds)
    return gradients / max(sum(cell.train_rows for cell in cells), 1)


def converged(cells: Sequence[Cell], view: str) -> Convergence:
    """Whether the clients' mean accuracy has stopped rising, over all seeds.

    The reference `converged` stops by itself, where its held-out rows no longer gain.
    """
    if cells[0].method.startswith(CONVERGED):
        return Convergence("converged", 0.0, 0)
    curve = mean_curve([score_curve(cell.rounds, view) for cell in cells])
    return convergence(curve, min(len(cell.rounds) for cell in cells))


def assessed(cell: Cell, view: str, references: References) -> Fairness:
    """The fairness of one run, its gains against the first reference and against every other there is."""
    first, usual = references.compared(cell), references.cells[REFERENCE][cell.seed]
    run = against(cell, view, first)
    budget = run if first is usual else against(cell, view, usual)
    run = replace(run, budget_gain=budget.mean_gain, budget_worse_off=budget.worse_off)
    order = {name: getattr(budget, name) for name in ("cf", "cf_low", "cf_high", "spearman")}
    if alone := references.of(CONVERGED, cell.seed):
        second = run if first is alone else against(cell, view, alone)
        order["converged_cf"] = second.cf
        run = replace(run, converged_gain=second.mean_gain, converged_worse_off=second.worse_off)
    if alone := references.of(SGD_REFERENCE, cell.seed):
        run = replace(run, sgd_gain=against(cell, view, alone).mean_gain)
    return replace(run, **order)


def against(cell: Cell, view: str, reference: Cell) -> Fairness:
    """The fairness of one run; if nobody has an accuracy there is none, and without a reference no gains."""
    after, before = accuracies(cell, view), accuracies(reference, "personal")
    if all(map(math.isnan, after)):
        return Fairness(math.nan, math.nan, math.nan, clients=0, failed=len(after))
    comparable = any(not math.isnan(a + b) for a, b in zip(after, before, strict=True))
    return assess(before if comparable else None, after, pairs(cell, view, reference), seed=cell.seed)


def pairs(cell: Cell, view: str, reference: Cell) -> list[Paired | None] | None:
    """Each client's test rows under the reference's model and under this one; None where they are unknown."""
    before, after = reference.outcomes.get("personal"), cell.outcomes.get(view)
    if not cell.judged or before is None or after is None:
        return None
    return [
        Paired(rows, before[k], after[k], np.full(len(rows), 1 / len(rows)) if weights is None else weights)
        if k in before and k in after
        else None
        for k, (rows, weights) in enumerate(cell.judged)
    ]


def views_of(cell: Cell) -> list[str]:
    return [
        measure.removesuffix("/accuracy")
        for measure in cell.rounds[-1].scores
        if measure.endswith("/accuracy")
    ]


def accuracies(cell: Cell, view: str) -> list[float]:
    """Each client's accuracy when it was judged last; nan for a client whose training failed."""
    scores = cell.rounds[-1].scores[f"{view}/accuracy"]
    return [scores.get(client, math.nan) for client in range(len(cell.distinct_test_rows))]


def shortened(failures: list[str], most: int = 10) -> list[str]:
    """A client that fails in every round need not be told of in every round."""
    more = len(failures) - most
    return failures[:most] + ([f"and {more} more failures, in summary.json"] if more > 0 else [])


def to_dict(
    plan: Plan, rows: Sequence[Row], warnings: Sequence[str], audits: Sequence[Audit] = ()
) -> dict[str, Any]:
    told = {"warnings": list(warnings), "remarks": plan.remarks}
    shifts = {str(one.seed): [own["shift"] for own in one.to_dict()["clients"]] for one in shifted(audits)}
    by_seed = {"shifts": shifts} if shifts else {}
    return {"plan": plan.model_dump(), **told, "rows": [row.to_dict() for row in rows], **by_seed}


def shifted(audits: Sequence[Audit]) -> list[Audit]:
    """The audits that can tell how far clients were shifted."""
    return [found for found in audits if any(client.shift for client in found.clients)]
