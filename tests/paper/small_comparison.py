"""Small comparisons of one's own making: settings that were really run, and the same under other names."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from fedakd.compare.results import Results, Setting
from fedakd.experiment import carry_out
from fedakd.plan import resolve
from fedakd.runfolder import RunFolder
from test_runfolder import Silent

METHODS = ("fedavg", "cffl", "cgsv", "fedave", "fedsac", "fedakd")


def setting_of(folder: Path, **choices: object) -> Setting:
    said = {"clients": 6, "rounds": 3, "fraction": 0.3, "model": "mlp", "seeds": (0, 1), "methods": METHODS}
    plan = resolve("tuned", **{**said, **choices})
    cells = carry_out(plan, RunFolder.create(folder, plan, {}), Silent(), workers=0)
    audits = {seed: json.loads((folder / f"audit-seed{seed}.json").read_text()) for seed in plan.seeds}
    return Setting(plan, tuple(cells), audits, {})


def as_if(results: Results, **fields: object) -> Results:
    """The same cells under another plan: as if they were of a dataset the paper has numbers for."""
    settings = [replace(one, plan=one.plan.model_copy(update=fields)) for one in results.settings]
    return replace(results, settings=tuple(settings))
