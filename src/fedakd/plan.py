"""What a run is to do, with every choice made: the part of a result that says how to repeat it."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from fedakd import methods, partition
from fedakd.errors import PlanError, unknown
from fedakd.method import Method
from fedakd.methods.fedsac import FedSAC
from fedakd.models import MODELS
from fedakd.rounds import Budget
from fedakd.training import Recipe

RESULTS = 4  # raised whenever a change of code changes numbers: results of different versions do not mix
RELEASED_ROWS = 2  # likewise, for the rows of preset released alone
Preset = Literal["tuned", "paper", "released"]
PAPER_LR = {"fashion-mnist": 0.001, "cifar10": 0.005}
OTHER_LR = 0.01  # the paper names no rate for other data
Reference = Literal["equal-budget", "converged"]
REFERENCE = "standalone"  # with the rounds and the recipe of the run
CONVERGED = methods.CONVERGED  # as long as held-out rows gain by it
SGD_REFERENCE = "standalone(sgd=true)"  # for methods that need plain SGD
MOST_ROUNDS = 20  # times those of the method that sets the time or the gradients, where these end a run
ALL = "all"  # the paper's thirteen methods
LEAKING = ("fedakd", "cffl", "cgsv")  # published code that trains on test rows; the names that start so
SINGULAR = {"methods": "method", "seeds": "seed"}  # fields whose options are given one by one
# Fields that say nothing of a single cell, or are part of its identity only where they change its numbers.
NOT_OF_A_CELL = {
    *("methods", "seeds", "rounds", "leak"),
    *("reference", "equal_gradients", "method_rounds"),
}
SETTINGS = {"tuned": "orig", "paper": "paper", "released": "released"}  # each method's own presets


class Plan(BaseModel):
    """A comparison on one dataset and partition: methods times seeds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    preset: Preset = "tuned"  # first: methods are read in its light
    dataset: str = "digits"
    partition: str = "ics(1)"
    equal_time: str | None = None  # a method whose seconds the others get instead of its rounds
    equal_gradients: str | None = None  # a method whose sample-gradients all others get instead of its rounds
    reference: Reference = "equal-budget"  # what gains are shown against first
    methods: tuple[str, ...] = (REFERENCE, "fedavg", "fedakd")
    seeds: tuple[int, ...] = (0,)
    clients: int = Field(default=10, ge=1)
    rounds: int = Field(default=20, ge=1)
    method_rounds: dict[str, int] = {}  # of methods that do not have `rounds` of them
    fraction: float = Field(default=1.0, gt=0, le=1)  # of each pool's rows
    scale: float = Field(default=1.0, gt=0, le=1)  # of the training rows that leaves; tests stay whole
    model: str = "cnn"
    epochs: int = Field(default=1, ge=1)
    batch_size: int = Field(default=32, ge=1)
    optimizer: Literal["sgd", "adam"] = "adam"
    lr: float = Field(default=0.001, gt=0, allow_inf_nan=False)
    weight_decay: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    participation: float = Field(default=1.0, gt=0, le=1)
    evaluation: Literal["auto", "local", "global"] = "auto"
    judge_every: int = Field(default=1, ge=1)  # rounds; the last quarter is judged in every round
    max_seconds: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    max_gradients: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    leak: bool = True  # preset released: whether methods train on test rows where their published code does

    @field_validator("leak")
    @classmethod
    def _released_only(cls, value: bool, info: ValidationInfo) -> bool:
        if not value and info.data.get("preset") != "released":
            raise ValueError("only preset released trains on test rows; leave it out")
        return value

    @field_validator("model")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in MODELS:
            raise PlanError(unknown("model", value, MODELS))
        return value

    @field_validator("equal_time", "equal_gradients")
    @classmethod
    def _known_method(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and info.field_name == "equal_gradients" and info.data.get("equal_time"):
            raise ValueError("equal time and equal gradients exclude each other; leave out one")
        return None if value is None else methods.canonical(value, SETTINGS[info.data.get("preset", "tuned")])

    @field_validator("partition")
    @classmethod
    def _one_spelling(cls, value: str) -> str:
        return partition.text(partition.parse(value))

    @field_validator("methods")
    @classmethod
    def _reference_first(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        """CF and gains compare with Standalone, so it is always part of a run; `all` is the paper's 13."""
        if any(one.strip().lower().startswith(f"{ALL}(") for one in value):
            raise ValueError("all takes no fields; --preset paper chooses them for all methods")
        settings = SETTINGS[info.data.get("preset", "tuned")]
        paced = [info.data.get(key) for key in ("equal_time", "equal_gradients")]
        second = [CONVERGED] if info.data.get("reference") == "converged" else []
        said = [
            *second,
            *filter(None, paced),  # before those that get its time or gradients
            *(
                name
                for one in value
                for name in (methods.of_the_paper() if one.strip().lower() == ALL else [one])
            ),
        ]
        return tuple(dict.fromkeys([REFERENCE, *(methods.canonical(one, settings) for one in said)]))

    @field_validator("method_rounds")
    @classmethod
    def _of_methods(cls, value: dict[str, int], info: ValidationInfo) -> dict[str, int]:
        settings = SETTINGS[info.data.get("preset", "tuned")]
        if any(rounds < 1 for rounds in value.values()):
            raise ValueError("a method needs at least 1 round")
        return {methods.canonical(name, settings): rounds for name, rounds in value.items()}

    @field_validator("seeds")
    @classmethod
    def _distinct(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if not value or min(value) < 0:
            raise ValueError("expected one or more seeds of 0 or above")
        return tuple(dict.fromkeys(value))

    @property
    def title(self) -> str:
        size = f"{self.clients} clients, {self.rounds} rounds"
        return f"{self.dataset}, {self.partition}, {size}, preset {self.preset}"

    @property
    def recipe(self) -> Recipe:
        return Recipe(self.epochs, self.batch_size, self.lr, self.optimizer, self.weight_decay)

    @property
    def budget(self) -> Budget:
        return Budget(self.max_seconds or math.inf, self.max_gradients or math.inf)

    @property
    def version(self) -> int | list[int]:
        """What results must have in common with those of other runs to be mixed with them."""
        return [RESULTS, RELEASED_ROWS] if self.preset == "released" else RESULTS

    def method(self, name: str) -> Method:
        """The method of that name, with the fields of the preset where the text does not set them."""
        return methods.parse(name, SETTINGS[self.preset])

    @property
    def remarks(self) -> list[str]:
        """What a reader of the numbers must know about single methods."""
        found = []
        if self.leaking:
            found.append(f"LEAKY BY DESIGN: trained on their own test rows: {', '.join(self.leaking)}")
        if closed := [name for name in self.methods if self._leaked(name) and not self.leak]:
            found.append(f"not the published protocol: without their test rows train {', '.join(closed)}")
        usual = self.recipe
        for name in self.methods:
            own = self.method(name).recipe(usual)
            if not is_reference(name) and (own.optimizer, own.lr) != (usual.optimizer, usual.lr):
                found.append(
                    f"{name} trains with {own.optimizer} {own.lr:g}, standalone with {usual.optimizer} "
                    f"{usual.lr:g}: its gains are also those of another recipe"
                )
            method = self.method(name)
            if isinstance(method, FedSAC) and method.first >= self.rounds_of(name):
                told = f"after round {method.first}, which no round of this run follows"
                found.append(f"{name} measures units {told}: all clients train the whole model")
        return found

    def needs_sgd(self, name: str) -> bool:
        """Whether the method trains with plain SGD where the run says otherwise."""
        recipe = self.method(name).recipe(self.recipe)
        return not is_reference(name) and recipe.optimizer == "sgd" != self.optimizer

    def rounds_of(self, name: str) -> int:
        """At most. The published code gives FedAKD 30 rounds where the others get 20."""
        if name.startswith(CONVERGED):  # it trains for as long as it gains, all in its first round
            return 1
        if self.paced_by(name):
            return self.rounds * MOST_ROUNDS
        more = self.preset == "released" and name.startswith("fedakd")
        return self.method_rounds.get(name, round(self.rounds * 1.5) if more else self.rounds)

    def participation_of(self, name: str) -> float:
        """The share of clients per round; the converged reference trains all clients in its only round."""
        return 1.0 if name.startswith(CONVERGED) else self.participation

    def paced_by(self, name: str) -> str | None:
        """The method whose time or sample-gradients this one gets instead of rounds, if there is one."""
        if name.startswith(CONVERGED) or name == (self.equal_time or self.equal_gradients):
            return None
        return self.equal_gradients or (None if name == REFERENCE else self.equal_time)

    @property
    def not_competing(self) -> list[str]:
        """Methods that are shown and ranked with nobody: other references, and those that saw test rows."""
        others = [name for name in self.methods if is_reference(name) and name != REFERENCE]
        return [*others, *self.spoiled]

    def leaks(self, name: str) -> bool:
        return self.leak and self._leaked(name)

    @property
    def leaking(self) -> list[str]:
        """Methods that train on their own test rows."""
        return [name for name in self.methods if self.leaks(name)]

    @property
    def spoiled(self) -> list[str]:
        """Methods that have seen their test rows: shown with the others, competing with nobody.

        Those of preset `released` that use validation rows have, as these are test rows too.
        """
        return [name for name in self.methods if self.spoils(name)]

    def spoils(self, name: str) -> bool:
        published = self.preset == "released"
        return self.leaks(name) or (published and self.method(name).needs_validation)

    def _leaked(self, name: str) -> bool:
        """Whether its published code trains on test rows."""
        return self.preset == "released" and name.startswith(LEAKING)

    def cell(self, name: str, seed: int) -> dict[str, Any]:
        """Everything that determines the numbers of one method and seed."""
        shared = self.model_dump(exclude=NOT_OF_A_CELL)
        if pacing := self.paced_by(name):  # its time or gradients end this one
            shared["paced_by"] = fingerprint(self.cell(pacing, seed))
        if not self.leak and self._leaked(name):  # the others, and those that leak, are the same cells
            shared["leak"] = False
        fields = {"type": type(self.method(name)).__name__, **asdict(self.method(name))}  # type: ignore[call-overload]
        return {
            **shared,
            "method": fields,
            "rounds": self.rounds_of(name),
            "seed": seed,
            "results": self.version,
        }


def is_reference(name: str) -> bool:
    """Whether clients of this method train alone.

    >>> [is_reference(name) for name in ("standalone", "standalone(sgd=true)", "converged", "fedavg")]
    [True, True, True, False]
    """
    return name.startswith((REFERENCE, CONVERGED))


def resolve(preset: str | None = None, **choices: Any) -> Plan:
    """A plan from a preset and what the user says; None means that the preset, or its default, decides."""
    preset = preset or "tuned"
    if preset not in get_args(Preset):
        raise PlanError(unknown("preset", preset, get_args(Preset)))
    said = {key: value for key, value in choices.items() if value is not None}
    try:
        return Plan(**{"preset": preset, **defaults(preset, said.get("dataset", "digits")), **said})
    except ValidationError as error:
        raise PlanError(explained(error)) from error


def defaults(preset: str, dataset: str) -> dict[str, Any]:
    if preset == "tuned":
        return {}
    lr = PAPER_LR.get(dataset, OTHER_LR if preset == "paper" else 0.001)
    return {"fraction": 0.5, "optimizer": "sgd" if preset == "paper" else "adam", "lr": lr}


def explained(error: ValidationError) -> str:
    """One line for each wrong field: its name, what is allowed, what came."""
    found = error.errors()
    inner = {
        one["loc"][0] for one in found if len(one["loc"]) > 1
    }  # a list without its wrong entries is short
    shown = [one for one in found if one["type"] != "too_short" or one["loc"][0] not in inner]
    return "; ".join(
        f"{'.'.join(map(str, one['loc']))}: {_plainly(one['type'], one['msg'])}, got {one['input']!r}"
        for one in shown
    )


def _plainly(kind: str, message: str) -> str:
    if kind == "too_short":
        return "expected at least 1"
    return message.removeprefix("Value error, ").replace("valid tuple", "list")


def fingerprint(cell: dict[str, Any]) -> str:
    """A short name for a cell's fields, equal for equal fields on every machine."""
    return hashlib.sha256(json.dumps(cell, sort_keys=True).encode()).hexdigest()[:16]
