"""Every method, and each with those of its presets that differ from what METHODS has."""

from __future__ import annotations

from dataclasses import replace

from fedakd import methods
from fedakd.method import Method
from fedakd.methods import ABLATIONS, parse
from fedakd.methods.converged import Converged
from fedakd.methods.fedsac import FedSAC


def brief(method: Method) -> Method:
    """The second reference trains for hundreds of epochs; tests of what all methods share need few."""
    return replace(method, patience=2, limit=4) if isinstance(method, Converged) else method


def soon(method: Method) -> Method:
    """FedSAC's presets take units away after many rounds; here after the first, or no test would meet it."""
    return replace(method, first=1, refresh=1) if isinstance(method, FedSAC) else method


METHODS = {name: brief(method) for name, method in methods.METHODS.items()}
PRESETS = {
    f"{name}-{preset}": soon(parse(name, preset))
    for name in METHODS
    for preset in METHODS[name].presets
    if name not in ABLATIONS and parse(name, preset) not in METHODS.values()
}
