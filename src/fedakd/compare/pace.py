"""Equal time as numbers of rounds: seconds per round are measured once, and what follows repeats."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median

from fedakd.cellfolder import write_json
from fedakd.compare.schema import Comparison, comparison
from fedakd.data import load
from fedakd.data.images import ImageDataset
from fedakd.drawn import federation_of
from fedakd.engine.serial import Serial
from fedakd.errors import PlanError
from fedakd.models import factory
from fedakd.plan import Plan, fingerprint, is_reference
from fedakd.rounds import begin, play
from fedakd.simulation import server_of, spec_of
from fedakd.training import Task

# What the seconds of a round depend on, besides the method and the machine.
COSTLY = {"preset", "clients", "fraction", "scale", "model", "epochs", "batch_size", "optimizer"}
MEASURED = 5  # rounds of each method
SECONDS = "seconds.json"
Say = Callable[[str], None]


def at_equal_time(
    asked: Comparison, base: str, folder: Path, say: Say, data_dir: Path | None = None
) -> Comparison:
    """The comparison in which every method has as many rounds as fit into the time of `base`.

    Seconds are kept in the folder and are not measured again: rounds must stay the same when the command is
    given again. References keep the rounds of the plan.
    """
    known: dict[str, dict[str, float]] = _stored(folder / SECONDS)
    overrides = []
    for plan in asked.settings:
        key = f"{plan.dataset} {plan.partition} {fingerprint(plan.model_dump(include=COSTLY))}"
        if not _timed(plan) <= known.get(key, {}).keys():
            say(f"{key}: measuring seconds per round; best with nothing else running on this machine")
            known[key] = seconds_per_round(plan, load(plan.dataset, data_dir))
            folder.mkdir(parents=True, exist_ok=True)
            write_json(folder / SECONDS, known)
        rounds = rounds_in_time(known[key], base, plan.rounds)
        where = {"dataset": plan.dataset, "partition": plan.partition}
        overrides.append({**where, "set": {"method_rounds": rounds}})
    said = asked.model_dump(mode="json")
    return comparison({**said, "override": [*said["override"], *overrides]}, "equal time")


def seconds_per_round(plan: Plan, dataset: ImageDataset, rounds: int = MEASURED) -> dict[str, float]:
    """The median seconds of some rounds of every method on one core, all methods taking turns.

    Turns spread whatever else the machine does over all methods alike.
    """
    federation = federation_of(plan, dataset, plan.seeds[0], leak=False)
    task = Task(factory(plan.model, dataset.shape, dataset.classes))
    server, seed = server_of(federation, task, plan.recipe, 1), plan.seeds[0]
    names = sorted(_timed(plan), key=plan.methods.index)
    spec = spec_of(plan.method(names[0]), federation, task, plan.recipe, seed)
    everyone = list(range(federation.clients))
    engines = {name: Serial(replace(spec, method=plan.method(name))) for name in names}
    states = {name: begin(plan.method(name), engines[name], server, seed=seed).state for name in names}
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(1, rounds + 1):
        server.stream = (seed, number, 0)
        for name in names:
            method = plan.method(name)
            states[name], record = play(method, engines[name], server, states[name], number, everyone)
            seconds[name].append(record.seconds)
    return {name: median(times) for name, times in seconds.items()}


def rounds_in_time(seconds: Mapping[str, float], base: str, rounds: int) -> dict[str, int]:
    """As many rounds of each method as fit into the time of so many rounds of `base`, at least one.

    >>> rounds_in_time({"fedakd": 2.0, "fedavg": 1.0, "fedas": 3.5}, "fedakd", 40)
    {'fedakd': 40, 'fedavg': 80, 'fedas': 22}
    """
    if base not in seconds:
        raise PlanError(f"equal time is that of {base}, which is not compared; add --method {base}")
    return {name: max(1, math.floor(rounds * seconds[base] / own)) for name, own in seconds.items()}


def _timed(plan: Plan) -> set[str]:
    return {name for name in plan.methods if not is_reference(name)}


def _stored(path: Path) -> dict[str, dict[str, float]]:
    try:
        return dict(json.loads(path.read_text())) if path.exists() else {}
    except (ValueError, TypeError) as error:
        raise PlanError(f"{path} is damaged: {error}; delete it, and seconds are measured again") from error
