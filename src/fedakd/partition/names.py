"""Partitions by text: `ics(5, mode=ratio)` and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, cast

from fedakd import spelling
from fedakd.errors import PartitionError
from fedakd.partition.contract import Partition
from fedakd.partition.groups import ByGroup
from fedakd.partition.labels import ClassLadder, Dirichlet
from fedakd.partition.shift import GaussianShift
from fedakd.partition.sizes import Equal, PowerLaw


@dataclass(frozen=True)
class Entry:
    """What a name on the command line stands for."""

    kind: type[Any]
    summary: str
    fixed: Mapping[str, spelling.Value] = field(default_factory=dict)

    def fields(self) -> dict[str, Field[Any]]:
        """What may be set by text, in order."""
        return {one.name: one for one in fields(self.kind) if one.name not in self.fixed and one.compare}


PARTITIONS: dict[str, Entry] = {
    "iid": Entry(Equal, "equal sizes, the same distribution everywhere"),
    "pow": Entry(PowerLaw, "power-law sizes (1/k), the same distribution everywhere"),
    "bcs": Entry(
        GaussianShift,
        "covariate shift: equal sizes, each mean shifted by c",
        {"sizes": "equal", "encoder": None},
    ),
    "ics": Entry(
        GaussianShift,
        "covariate shift: power-law sizes, each mean shifted by c",
        {"sizes": "power", "encoder": None},
    ),
    "cla": Entry(ClassLadder, "class ladder: equal sizes, from one class to all classes"),
    "dir": Entry(Dirichlet, "Dirichlet(alpha) shares of each class: sizes and classes differ"),
    "group": Entry(ByGroup, "the groups the dataset comes with, one client each"),
}


def parse(text: str) -> Partition:
    """The partition a text stands for.

    >>> parse("ICS(5, mode=ratio)")
    GaussianShift(c=5.0, sizes='power', mode='ratio', dims=10, replacement=True, directions=32, force=False, \
kl=None, c_cov=None, cov='scale', features='pca', encoder=None)
    """
    name, inside = spelling.name_and_inside(text, "partition", PARTITIONS, PartitionError)
    entry = PARTITIONS[name]
    told = spelling.values(name, entry.fields(), inside, PartitionError)
    missing = [key for key, one in entry.fields().items() if one.default is MISSING and key not in told]
    if missing:
        raise PartitionError(f"{name} needs {', '.join(missing)}, as in {name}(0.5); got none")
    return cast(Partition, entry.kind(**entry.fixed, **told))


def text(partition: Partition) -> str:
    """The canonical text, which parses to this partition again; a partition of one's own shows its repr.

    >>> text(GaussianShift(c=2, sizes="power", dims=20)), text(GaussianShift(kl=1.5))
    ('ics(2, dims=20)', 'bcs(kl=1.5)')
    """
    name = next((name for name, entry in PARTITIONS.items() if _is(partition, entry)), None)
    if name is None:
        return repr(partition)
    known = PARTITIONS[name].fields()
    first = next(iter(known), "")  # told even if usual, unless it is not used
    return spelling.spelled(name, known, partition, always=int(getattr(partition, first, None) is not None))


def _is(partition: Partition, entry: Entry) -> bool:
    return type(partition) is entry.kind and all(
        getattr(partition, name) == value for name, value in entry.fixed.items()
    )
