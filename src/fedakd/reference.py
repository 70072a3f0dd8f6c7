"""The page `docs/methods.md`, made from the methods themselves.

    python -m fedakd.reference > docs/methods.md

What is kept and sent, and what a round costs, is measured in a run of a few rounds; the rest is what the code
says of itself. So the page cannot tell anything else than the code does, and a test compares the two.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedakd import trees
from fedakd.data import load
from fedakd.engine.base import Spec, Trained
from fedakd.engine.serial import Serial
from fedakd.federation import federate
from fedakd.method import Method
from fedakd.methods import ABLATIONS, METHODS, PRESETS, by_preset
from fedakd.models import factory
from fedakd.rounds import Result, run
from fedakd.simulation import server_of, spec_of
from fedakd.training import Recipe, Task
from fedakd.trees import Tree

ROUNDS, CLIENTS = 3, 5
INTRODUCTION = """# Methods

This page is made by `python -m fedakd.reference` from the code and from a short run of every method.

- **Confidence**: *official* methods follow their authors' code, or a text on which implementations agree;
  *reconstructed* ones had to be rebuilt from what is public, and every guess is listed.
- **Presets**: a method's defaults are what its authors define (`orig`). `paper` has the values of the KDD
  2025 paper's table, `released` those of the code published with it: `--method "cffl(preset=paper)"`, or for
  all methods `--preset paper`. A dash stands for the same value as `orig`.
- **Judged by**: the client's model that is scored; on a common test set, where a model shared by all cannot
  tell clients apart, the one in brackets.
"""
MEASURED = f"""Measured with the batch-norm CNN on digits, `ics(2)`, {CLIENTS} clients, {ROUNDS} rounds.
Sizes are multiples of the model's, {{model:,}} bytes (nothing given: a few numbers); up and down are what one
client sends and receives in a round, passes the gradients computed per training row. Where the first round
differs it stands first.
"""
GLANCE = (
    "method",
    "what it does",
    "judged by",
    "validation rows",
    "says who contributes",
    "confidence",
    "source",
)
TRAFFIC = (
    "method",
    "server keeps",
    "client receives",
    "client sends",
    "client keeps",
    "passes",
    "up",
    "down",
)


def page() -> str:
    """The whole page."""
    seen = {name: observed(method) for name, method in METHODS.items() if name not in ABLATIONS}
    glance = table(GLANCE, [[f"`{name}`", *glance_line(one)] for name, one in seen.items()])
    traffic = table(TRAFFIC, [[f"`{name}`", *traffic_line(one)] for name, one in seen.items()])
    measured = MEASURED.format(model=next(iter(seen.values())).model)
    parts = [INTRODUCTION, "## At a glance\n", glance, "## What is kept and sent\n", measured, traffic]
    parts += ["## One by one\n", *(section(name, METHODS[name]) for name in seen), ablations()]
    return "\n".join(parts)


@dataclass(frozen=True)
class Observed:
    """What a short run of a method showed."""

    method: Method
    result: Result
    model: int  # bytes
    rows: int
    state: Tree
    message: Tree
    kept: Tree
    update: Tree


class Listening(Serial):
    """The serial engine, remembering the last message and update of client 0."""

    message: Tree
    update: Tree

    def train(self, round: int, messages: Mapping[int, Tree]) -> Trained:
        trained = super().train(round, messages)
        self.message, self.update = messages[0], trained.updates[0]
        return trained


def observed(method: Method) -> Observed:
    dataset = load("digits")
    federation = federate(dataset, "ics(2)", CLIENTS, seed=0)
    task, recipe = Task(factory("cnn", dataset.shape, dataset.classes)), Recipe(lr=0.001, optimizer="adam")
    spec: Spec = spec_of(method, federation, task, recipe, 0)
    engine, server = Listening(spec), server_of(federation, task, recipe)
    result = run(method, engine, server, rounds=ROUNDS)
    rows = sum(map(len, federation.train))
    trees_seen = (result.state, engine.message, engine.sites[0].kept, engine.update)
    return Observed(method, result, trees.nbytes(dict(server.init(0))), rows, *trees_seen)


def glance_line(one: Observed) -> list[str]:
    method, worth = one.method, one.result.rounds[-1].contributions
    needs, says = ("needed" if method.needs_validation else "", "" if worth is None else "yes")
    return [method.summary, judged(one), needs, says, method.confidence, method.citation]


def judged(one: Observed) -> str:
    measures = one.result.rounds[-1].scores
    views = [measure.removesuffix("/accuracy") for measure in measures if measure.endswith("/accuracy")]
    own = next((view for view in views if view != "global"), views[0])
    return views[0] if own == views[0] else f"{views[0]} ({own})"


def traffic_line(one: Observed) -> list[str]:
    parts = [contents(tree, one.model) for tree in (one.state, one.message, one.update, one.kept)]
    moved = one.model * CLIENTS
    return [
        *parts,
        cost(one, "gradients", one.rows),
        cost(one, "bytes_up", moved),
        cost(one, "bytes_down", moved),
    ]


def contents(tree: Tree, model: int) -> str:
    """The parts of a tree, each that weighs with its size in models."""
    sizes = {name: trees.nbytes({name: part}) / model for name, part in sorted(tree.items())}
    told = [f"`{name}`" + (f" {size:.1f}x" if size >= 0.05 else "") for name, size in sizes.items()]
    return ", ".join(told) or "–"


def cost(one: Observed, quantity: str, unit: float) -> str:
    first, *_, last = (getattr(record, quantity) / unit for record in one.result.rounds)
    return f"{last:.1f}" if f"{first:.1f}" == f"{last:.1f}" else f"{first:.1f}, then {last:.1f}"


def section(name: str, method: Method) -> str:
    """What the method's own file says, and its fields."""
    text = (sys.modules[type(method).__module__].__doc__ or "").strip()
    title = type(method).title or type(method).__name__
    return "\n".join([f"### {title}\n", "```text", text, "```\n", field_table(name)])


def field_table(name: str) -> str:
    lines = [[f"`{field}`", *differing(values)] for field, values in by_preset(name).items()]
    return table(["field", *PRESETS], lines) if lines else "No fields.\n"


def differing(values: Sequence[str]) -> list[str]:
    """Every value that is not the default's again."""
    return [values[0], *("–" if value == values[0] else value for value in values[1:])]


def ablations() -> str:
    lines = [[f"`{name}`", summary] for name, summary in ABLATIONS.items()]
    return "\n".join(["### Ablations of FedAKD\n", table(["name", "what changes"], lines)])


def table(headers: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [headers, ["---"] * len(headers), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
