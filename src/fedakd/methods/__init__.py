"""All methods by name. A new one is one file and one line here."""

from __future__ import annotations

from dataclasses import fields, replace

from fedakd import spelling
from fedakd.errors import PlanError
from fedakd.method import Method
from fedakd.methods.fedakd import FedAKD
from fedakd.methods.fedavg import FedAvg
from fedakd.methods.standalone import Standalone

METHODS: dict[str, Method] = {
    "standalone": Standalone(),
    "fedavg": FedAvg(),
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


def parse(text: str) -> Method:
    """The method a text stands for.

    >>> parse("fedakd(alpha=0.5, select=all)").alpha
    0.5
    """
    name, inside = spelling.name_and_inside(text, "method", METHODS, PlanError)
    known = {field.name: field for field in fields(METHODS[name])}  # type: ignore[arg-type]
    return replace(METHODS[name], **spelling.values(name, known, inside, PlanError))  # type: ignore[type-var]


def canonical(text: str) -> str:
    """One spelling for each method: a name of the list if its fields are those, else the changed fields.

    >>> canonical("FedAKD( select=all )"), canonical("fedavg")
    ('fedakd-all-data', 'fedavg')
    """
    method = parse(text)
    name = next((name for name, known in METHODS.items() if known == method), None)
    if name is not None:
        return name
    base = next(name for name, known in METHODS.items() if type(known) is type(method))
    return spelling.spelled(base, {field.name: field for field in fields(method)}, method)  # type: ignore[arg-type]
