"""All methods by name. A new one is one file and one line here; docs/extending.md says what else."""

from __future__ import annotations

from dataclasses import Field, dataclass, fields, replace
from typing import Any, Literal

from fedakd import spelling
from fedakd.errors import PlanError, unknown
from fedakd.method import Method
from fedakd.methods.cffl import CFFL
from fedakd.methods.cgsv import CGSV
from fedakd.methods.converged import Converged
from fedakd.methods.fedakd import FedAKD
from fedakd.methods.fedas import FedAS
from fedakd.methods.fedave import FedAVE
from fedakd.methods.fedavg import FedAvg
from fedakd.methods.feddc import FedDC
from fedakd.methods.fedmpr import FedMPR
from fedakd.methods.fedprox import FedProx
from fedakd.methods.fedsac import FedSAC
from fedakd.methods.pfedck import PFedCK
from fedakd.methods.scaffold import SCAFFOLD
from fedakd.methods.standalone import Standalone

METHODS: dict[str, Method] = {
    "standalone": Standalone(),
    "converged": Converged(),
    "fedavg": FedAvg(),
    "fedprox": FedProx(),
    "scaffold": SCAFFOLD(),
    "cffl": CFFL(),
    "cgsv": CGSV(),
    "fedave": FedAVE(),
    "fedsac": FedSAC(),
    "pfedck": PFedCK(),
    "feddc": FedDC(),
    "fedas": FedAS(),
    "fedmpr": FedMPR(),
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
CONVERGED = "converged"  # the second reference, which the paper does not have
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
    if (chosen := str(said.pop("preset", preset))) not in PRESETS:
        raise PlanError(unknown("preset of a method", chosen, PRESETS))
    base = METHODS[name].presets.get(chosen, {})
    return replace(METHODS[name], **{**base, **said})  # type: ignore[type-var]


def canonical(text: str, preset: str = "orig") -> str:
    """One spelling for each method: the name and preset it is nearest to, and the fields that differ.

    >>> canonical("FedAKD( select=all )"), canonical("cffl(upload=0.2, preset=paper)")
    ('fedakd-all-data', 'cffl(preset=paper, upload=0.2)')
    """
    method = parse(text, preset)
    same = [name for name, known in METHODS.items() if type(known) is type(method)]
    known = spelled_fields(method)
    exact = next((name for name in same if parse(name, preset) == method), None)
    plain = spelling.spelled(same[0], known, method, usual=parse(same[0], preset))
    others = [one for one in PRESETS if one != preset and known]
    named = [
        spelling.spelled(same[0], known, method, usual=parse(same[0], p), first=f"preset={p}") for p in others
    ]
    return exact or min([plain, *named], key=lambda one: (one.count("="), one))


def of_the_paper() -> list[str]:
    """The paper's thirteen methods: all but the ablations and the second reference."""
    return [name for name in METHODS if name not in ABLATIONS and name != CONVERGED]


def by_preset(name: str) -> dict[str, list[str]]:
    """What each field of a method is in the presets, as text."""
    variants = [parse(name, preset) for preset in PRESETS]
    known = spelled_fields(METHODS[name])
    return {field: [spelling.shown(getattr(one, field)) for one in variants] for field in known}


def spelled_fields(method: Method, with_preset: bool = False) -> dict[str, Field[Any]]:
    """A method's fields by name, its own before those it has inherited."""
    own = list(type(method).__annotations__)
    known = {one.name: one for one in fields(method)}  # type: ignore[arg-type]
    ordered = [*(name for name in own if name in known), *(name for name in known if name not in own)]
    extra = {one.name: one for one in fields(Named)} if with_preset and known else {}
    return {name: known[name] for name in ordered} | extra
