"""Ways to divide a dataset among clients."""

from fedakd.partition.contract import ClientShift, Partition, Plan, Request, Rows, Weights
from fedakd.partition.groups import ByGroup
from fedakd.partition.labels import ClassLadder, Dirichlet
from fedakd.partition.names import PARTITIONS, Entry, parse, text
from fedakd.partition.shift import GaussianShift
from fedakd.partition.sizes import Equal, PowerLaw, power_law

__all__ = [
    "PARTITIONS",
    "ByGroup",
    "ClassLadder",
    "ClientShift",
    "Dirichlet",
    "Entry",
    "Equal",
    "GaussianShift",
    "Partition",
    "Plan",
    "PowerLaw",
    "Request",
    "Rows",
    "Weights",
    "parse",
    "power_law",
    "text",
]
