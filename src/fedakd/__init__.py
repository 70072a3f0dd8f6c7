"""Collaborative fairness in federated learning: FedAKD and its baselines, leak-free and fast."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from fedakd import methods as methods
    from fedakd import trees as trees
    from fedakd.data import load as load
    from fedakd.examples import Examples as Examples
    from fedakd.fairness import assess as assess
    from fedakd.fairness import cf_coefficient as cf_coefficient
    from fedakd.federation import Federation as Federation
    from fedakd.federation import federate as federate
    from fedakd.method import Client as Client
    from fedakd.method import Method as Method
    from fedakd.method import Server as Server
    from fedakd.models import factory as factory
    from fedakd.rounds import Budget as Budget
    from fedakd.rounds import Result as Result
    from fedakd.rounds import Round as Round
    from fedakd.simulation import simulate as simulate
    from fedakd.training import Recipe as Recipe
    from fedakd.training import Task as Task

# Where each public name lives; loaded on first use, so that importing the package, as --help does, is quick.
_HOMES = {
    "Budget": "rounds",
    "Client": "method",
    "Examples": "examples",
    "Federation": "federation",
    "Method": "method",
    "Recipe": "training",
    "Result": "rounds",
    "Round": "rounds",
    "Server": "method",
    "Task": "training",
    "assess": "fairness",
    "cf_coefficient": "fairness",
    "factory": "models",
    "federate": "federation",
    "load": "data",
    "simulate": "simulation",
}
_MODULES = ("methods", "trees")
__all__ = ["__version__", *_MODULES, *_HOMES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"fedakd.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'fedakd' has no attribute {name!r}")
    return getattr(import_module(f"fedakd.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
