"""Things with fields as text, `ics(5, mode=ratio)` or `fedakd(alpha=0.5)`, and back."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field
from typing import Any

from fedakd.errors import FedakdError, PlanError, unknown

Value = float | int | bool | str | None


def name_and_inside(
    text: str, kind: str, known: Mapping[str, Any], error: type[FedakdError]
) -> tuple[str, str]:
    """The known name at the start of the text, and what stands between its brackets."""
    match = re.fullmatch(r"\s*([\w-]+)\s*(?:\((.*)\))?\s*", text, re.DOTALL)
    if match is None:
        raise error(f"a {kind} reads like name or name(field=value), got {text!r}")
    name = match[1].lower()
    if name not in known:
        raise error(unknown(kind, name, known))
    return name, match[2] or ""


def values(
    name: str, known: Mapping[str, Field[Any]], inside: str, error: type[FedakdError]
) -> dict[str, Value]:
    """The fields that the text between the brackets sets, each as the type it is annotated with."""
    found: dict[str, Value] = {}
    try:
        for position, part in enumerate(inside.split(",") if inside.strip() else []):
            key, text = _pair(name, list(known), position, part)
            if key in found:
                raise ValueError(f"{name}: {key} is given twice in ({inside})")
            found[key] = _value(name, key, _annotation(known[key].type), text)
    except ValueError as problem:
        raise error(str(problem)) from None
    return found


def spelled(
    name: str,
    known: Mapping[str, Field[Any]],
    thing: object,
    *,
    usual: object = None,
    always: int = 0,
    first: str = "",
) -> str:
    """The text of a thing: its first `always` fields, and the others that differ from the usual thing's.

    Without a usual thing the fields' defaults count; what is to come first stands before them.
    """
    told = [
        shown(getattr(thing, one.name))
        if position < always
        else f"{one.name}={shown(getattr(thing, one.name))}"
        for position, one in enumerate(known.values())
        if position < always or getattr(thing, one.name) != getattr(usual, one.name, one.default)
    ]
    told = [first, *told] if first else told
    return f"{name}({', '.join(told)})" if told else name


def shown(value: Value) -> str:
    """
    >>> shown(5.0), shown(0.1), shown(True), shown("ratio")
    ('5', '0.1', 'true', 'ratio')
    """
    if isinstance(value, float) and not isinstance(value, bool):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return str(value).lower()


def _pair(name: str, known: list[str], position: int, part: str) -> tuple[str, str]:
    """The field a part of the text sets: the one it names, or else the one at its position."""
    key, equals, value = (piece.strip().lower() for piece in part.rpartition("="))
    if not known:
        raise ValueError(f"{name} takes no fields, got {part.strip()!r}")
    if not equals and position < len(known):
        return known[position], value
    if not equals:
        raise ValueError(f"{name} takes {', '.join(known)} and no more, got {value!r} too")
    if key not in known:
        raise ValueError(unknown(f"field of {name}", key, known))
    return key, value


def _annotation(kind: Any) -> str:
    """A field's type as it is written; modules differ in whether they keep it as text."""
    return kind.__name__ if isinstance(kind, type) else str(kind).removeprefix("typing.")


def _value(name: str, key: str, annotation: str, text: str) -> Value:
    choices = re.findall(r"['\"]([^'\"]*)['\"]", annotation) if annotation.startswith("Literal") else []
    if choices and text not in choices:
        raise ValueError(f"{name}: {unknown(key, text, choices)}")
    reader, expected = READERS.get(annotation, (str, "a word"))
    try:
        return reader(text)
    except (ValueError, KeyError):
        raise ValueError(f"{name}: {key} must be {expected}, got {text!r}") from None


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _truth(text: str) -> bool:
    return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}[text]


READERS: dict[str, tuple[Callable[[str], Value], str]] = {
    "float": (_finite, "a finite number"),
    "float | None": (lambda text: None if text == "none" else _finite(text), "a finite number or none"),
    "int": (int, "a whole number"),
    "int | None": (lambda text: None if text == "none" else int(text), "a whole number or none"),
    "bool": (_truth, "true or false"),
}


def numbers_by_name(option: str, texts: Sequence[str]) -> dict[str, int]:
    """The whole number said for each name.

    >>> numbers_by_name("--method-rounds", ["fedavg=12", "cffl(aggregate=sum)=9"])
    {'fedavg': 12, 'cffl(aggregate=sum)': 9}
    """
    pairs = [text.rpartition("=") for text in texts]
    for text, (name, _, number) in zip(texts, pairs, strict=True):
        if not name or not number.strip().isdecimal():
            raise PlanError(f"{option} must be like fedavg=12, got {text!r}")
    return {name: int(number) for name, _, number in pairs}
