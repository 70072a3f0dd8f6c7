"""Laws about what a method is: its class, its fields, and that it can travel."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, fields, is_dataclass
from typing import Any

from fedakd.engine.base import ClientError
from fedakd.engine.processes import Processes, WorkerDied
from fedakd.method import Method
from fedakd.testing.cases import PLAIN
from fedakd.testing.check import law
from fedakd.testing.report import Violation, differences, raised
from fedakd.testing.subject import Subject
from fedakd.testing.watching import attributes, own

IMPORTABLE = (
    "define it in a module that can be imported, not in a notebook, a function or a prompt; "
    "check_method(..., workers=False) does without"
)
GUARD = "in a script, call check_method under `if __name__ == '__main__':`"


@law("a method is a frozen dataclass, and its fields are all it has")
def frozen_dataclass(subject: Subject) -> Iterator[Violation]:
    name = type(subject.method).__name__
    if not is_dataclass(subject.method):
        yield Violation(name, "@dataclass(frozen=True) above the class", "a class without it")
        return
    known = {field.name for field in fields(subject.method)}
    for extra in sorted(vars(subject.method).keys() - known):
        yield Violation(f"{name}.{extra}", "hyper-parameters as fields and nothing else", "an attribute")
    for cls in type(subject.method).__mro__[:-1]:
        yield from undeclared(cls, known)
    try:
        twin(subject.method).summary = ""
        yield Violation(name, "@dataclass(frozen=True)", "a dataclass that can be assigned to")
    except FrozenInstanceError:
        pass


def twin(method: Method) -> Any:
    """Another object of the class with the same fields, made without the class having a say."""
    other = object.__new__(type(method))
    for name, value in attributes(method).items():
        object.__setattr__(other, name, value)
    return other


def undeclared(cls: type, known: set[str]) -> Iterator[Violation]:
    """Annotated names that were meant as fields; the decorator is missing on the class that has them."""
    for name, kind in vars(cls).get("__annotations__", {}).items():
        if name not in known and "ClassVar" not in str(kind):
            yield Violation(f"{cls.__name__}.{name}", "@dataclass(frozen=True) above its class", "no field")


@law("two methods are equal when their fields are, and only then")
def equal_by_fields(subject: Subject) -> Iterator[Violation]:
    method = subject.method
    name = type(method).__name__
    if not is_dataclass(method):
        return  # without fields there is nothing to compare
    if twin(method) != method:
        yield Violation(name, "equality by fields", "a copy with the same fields that is not equal")
    for field in fields(method):
        other = twin(method)
        object.__setattr__(other, field.name, object())
        if other == method:
            came = "equality with a copy in which it is different"
            yield Violation(f"{name}.{field.name}", "inequality where it differs", came)


@law("a method can be pickled, and comes back with the same fields")
def picklable(subject: Subject) -> Iterator[Violation]:
    name = type(subject.method).__name__
    try:
        back = pickle.loads(pickle.dumps(subject.method))
    except Exception as error:  # pickling calls the method's own code, which may raise anything
        yield raised(name, error, f"a method that pickles: {IMPORTABLE}")
        return
    yield from differences(f"{name} after pickling", own(subject.method), own(back))


@law("worker processes can import the method's class", needs=[picklable], parallel=True)
def importable(subject: Subject) -> Iterator[Violation]:
    where = f"{type(subject.method).__name__} of {type(subject.method).__module__}"
    try:
        with subject.crew(1) as workers:
            Processes(PLAIN.spec(subject.method), workers)
    except ClientError as error:
        yield raised(where, error, f"a class that workers can import: {IMPORTABLE}")
    except WorkerDied as error:
        yield raised(where, error, f"workers that start: {GUARD}")
