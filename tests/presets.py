"""Every method with each of its presets that differs from what METHODS has."""

from __future__ import annotations

from dataclasses import replace

from fedakd.method import Method
from fedakd.methods import ABLATIONS, METHODS, parse
from fedakd.methods.fedsac import FedSAC


def soon(method: Method) -> Method:
    """FedSAC's presets take units away after many rounds; here after the first, or no test would meet it."""
    return replace(method, first=1, refresh=1) if isinstance(method, FedSAC) else method


PRESETS = {
    f"{name}-{preset}": soon(parse(name, preset))
    for name in METHODS
    for preset in METHODS[name].presets
    if name not in ABLATIONS and parse(name, preset) not in METHODS.values()
}
