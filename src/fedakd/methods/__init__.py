"""All methods by name. A new one is one file and one line here."""

from __future__ import annotations

from dataclasses import Field, dataclass, fields, replace
from typing import Any, Literal

from fedakd import spelling
from fedakd.errors import PlanError
from fedakd.method import Method
from fedakd.methods.fedakd import FedAKD
from fedakd.methods.fedavg import FedAvg
from fedakd.methods.fedprox import FedProx
from fedakd.methods.standalone import Standalone

METHODS: dict[str, Method] = {
    "standalone": Standalone(),
    "fedavg": FedAvg(),
    "fedprox": FedProx(),
    "fedakd": FedAKD(),
    "fedakd-all-data": FedAKD(select="all"),
    "fedakd-single-dist": FedAKD(local_update="overwrite"),
    "fedakd-correct-agg": FedAKD(weigh_by="correct"),
}
ABLATIONS = {
    "fedakd-all-data": "ablation: all rows teach the global model",
    "fedakd-single-dist": "ablation: the global model overwrites the local one",
    "fedakd-correct-agg": "ablation: the server weighs by rows classified correctly",
}


PRESETS = ("orig", "paper", "released")


@dataclass(frozen=True)
class Named:
    """What can be said of a method besides its fields."""

    preset: Literal["orig", "paper", "released"] = "orig"


def parse(text: str, preset: str = "orig") -> Method:
    """The method a text stands for; fields that it does not set are the preset's.

    >>> parse("fedakd(alpha=0.5, select=all)").alpha, parse("fedprox(preset=released)").weigh_by
    (0.5, 'uniform')
    """
    name, inside = spelling.name_and_inside(text, "method", METHODS, PlanError)
    said = spelling.values(name, spelled_fields(METHODS[name], with_preset=True), inside, PlanError)
    base = METHODS[name].presets.get(str(said.pop("preset", preset)), {})
    return replace(METHODS[name], **{**base, **said})  # type: ignore[type-var]


def canonical(text: str, preset: str = "orig") -> str:
    """One spelling for each method: a name of the list if its fields are those, else the changed fields.

    >>> canonical("FedAKD( select=all )"), canonical("fedprox(preset=released)")
    ('fedakd-all-data', 'fedprox(preset=released)')
    """
    method = parse(text, preset)
    same = [name for name, known in METHODS.items() if type(known) is type(method)]
    named = [*same, *(f"{name}(preset={one})" for one in PRESETS for name in same)]
    if found := next((name for name in named if parse(name, preset) == method), None):
        return found
    return spelling.spelled(same[0], spelled_fields(method), method, parse(same[0], preset))


def spelled_fields(method: Method, with_preset: bool = False) -> dict[str, Field[Any]]:
    """A method's fields by name, its own before those it has inherited."""
    own = list(type(method).__annotations__)
    known = {one.name: one for one in fields(method)}  # type: ignore[arg-type]
    ordered = [*(name for name in own if name in known), *(name for name in known if name not in own)]
    extra = {one.name: one for one in fields(Named)} if with_preset and known else {}
    return {name: known[name] for name in ordered} | extra
