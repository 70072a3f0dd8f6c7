"""What a comparison is to do: datasets x partitions x methods x seeds, from a TOML file.

title = "Does it pay to join?"
datasets = ["digits"]
partitions = ["pow", "ics(2)"]
methods = ["fedavg", "fedakd"]          # Standalone is always part of it
seeds = 3                               # 0, 1, 2; or a list
preset = "tuned"
rounds = 20                             # this and what follows: fields of `fedakd.plan.Plan`

[[override]]                            # for some of the settings; later ones win
dataset = "digits"
partition = "ics(2)"
set = { lr = 0.005 }
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from fedakd import partition as partitions_
from fedakd.data import source
from fedakd.drawn import check_released
from fedakd.errors import FedakdError, PlanError
from fedakd.methods import parse
from fedakd.plan import ALL, Plan, Preset, explained, resolve

T = TypeVar("T")
GRID = {"title", "about", "datasets", "partitions", "methods", "seeds", "preset", "override"}
CHOICES = set(Plan.model_fields) - {"dataset", "partition", "methods", "seeds", "preset"}


class Override(BaseModel):
    """What some settings have otherwise: those of this dataset, partition, preset, or all of it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: str | None = None
    partition: str | None = None
    preset: Preset | None = None
    set: dict[str, Any]

    @field_validator("partition")
    @classmethod
    def _one_spelling(cls, value: str | None) -> str | None:
        return None if value is None else said_of("override.partition", canonical, value)

    @field_validator("set")
    @classmethod
    def _known(cls, value: dict[str, Any]) -> dict[str, Any]:
        check_choices(value, CHOICES | {"preset"})
        return value

    def holds(self, dataset: str, partition: str, preset: str) -> bool:
        asked = ((self.dataset, dataset), (self.partition, partition), (self.preset, preset))
        return all(wanted in (None, own) for wanted, own in asked)


class Comparison(BaseModel):
    """Everything said in one place; `settings` has it resolved, one plan for each dataset and partition."""

    model_config = ConfigDict(frozen=True, extra="allow")

    title: str
    about: str = ""
    datasets: tuple[str, ...] = Field(min_length=1)
    partitions: tuple[str, ...] = Field(min_length=1)
    methods: tuple[str, ...] = Field(min_length=1)
    seeds: tuple[int, ...] = (0, 1, 2)
    preset: Preset = "tuned"
    override: tuple[Override, ...] = ()

    @field_validator("seeds", mode="before")
    @classmethod
    def _counted(cls, value: Any) -> Any:
        """A number of seeds stands for the first ones."""
        if isinstance(value, int) and not isinstance(value, bool):
            return list(range(value))
        if not isinstance(value, list | tuple):
            raise ValueError("expected how many, as 3, or a list of them, as [0, 1, 2]")
        return value

    @field_validator("methods")
    @classmethod
    def _known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if name.strip().lower() != ALL:
                said_of("methods", parse, name)
        return value

    @field_validator("datasets")
    @classmethod
    def _there(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            said_of("datasets", source, name)
        return tuple(dict.fromkeys(value))

    @field_validator("partitions")
    @classmethod
    def _one_spelling(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(said_of("partitions", canonical, one) for one in value))

    @model_validator(mode="after")
    def _settings_resolve(self) -> Comparison:
        check_choices(self.choices, CHOICES | GRID)
        for one in self.override:
            if not any(one.holds(*pair, one.preset or self.preset) for pair in self.grid):
                where = ", ".join(str(part) for part in (one.dataset, one.partition) if part)
                raise PlanError(f"override: there is no setting {where!r}; settings are {self.grid}")
        for plan in self.settings:
            check_released(plan)
        return self

    @property
    def choices(self) -> dict[str, Any]:
        """The fields of a plan that hold for every setting."""
        return dict(self.__pydantic_extra__ or {})

    @property
    def grid(self) -> list[tuple[str, str]]:
        return [(dataset, partition) for dataset in self.datasets for partition in self.partitions]

    @property
    def settings(self) -> list[Plan]:
        return [self.setting(dataset, partition) for dataset, partition in self.grid]

    def setting(self, dataset: str, partition: str) -> Plan:
        said: dict[str, Any] = {"preset": self.preset, **self.choices}
        for one in self.override:
            said |= one.set if one.holds(dataset, partition, said["preset"]) else {}
        said |= {"partition": partition, "methods": self.methods, "seeds": self.seeds}
        return resolve(dataset=dataset, **said)


def canonical(partition: str) -> str:
    """The one spelling of a partition's text."""
    return partitions_.text(partitions_.parse(partition))


def said_of(key: str, read: Callable[[str], T], value: str) -> T:
    """What a text stands for; if it stands for nothing, the error names the key it was said under."""
    try:
        return read(value)
    except FedakdError as error:
        raise PlanError(f"{key}: {error}") from error


def check_choices(said: dict[str, Any], allowed: set[str]) -> None:
    """Keys are those of a plan, and no others."""
    for key in said:
        if key not in allowed:
            known = ", ".join(sorted(allowed))
            raise PlanError(f"{key} is no key that can be set here, got {said[key]!r}; allowed are {known}")
        if isinstance(said[key], bool) and key in CHOICES and Plan.model_fields[key].annotation is not bool:
            raise PlanError(f"{key} is neither true nor false, got {str(said[key]).lower()}")


def read_comparison(path: Path, **changes: Any) -> Comparison:
    """The comparison in a file, with what the caller says otherwise; None changes nothing."""
    try:
        said = tomllib.loads(path.read_text())
    except OSError as error:
        raise PlanError(f"{path}: expected a TOML file with a comparison; {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PlanError(f"{path}: this is not TOML: {error}") from error
    return comparison(said, str(path), **changes)


def comparison(said: dict[str, Any], where: str, **changes: Any) -> Comparison:
    changed = {key: value for key, value in changes.items() if value is not None}
    try:
        return Comparison(**{**said, **changed})
    except ValidationError as error:
        raise PlanError(f"{where}: {explained(error)}") from error
    except FedakdError as error:
        raise PlanError(f"{where}: {error}") from error
