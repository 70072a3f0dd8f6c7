"""Text and things with fields are two forms of one thing, and a slip in the text is told by name."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fedakd import spelling
from fedakd.errors import DataError, PlanError
from fedakd.methods import METHODS, canonical, parse
from fedakd.methods.fedakd import FedAKD
from fedakd.methods.fedavg import FedAvg
from fedakd.methods.standalone import Standalone


@dataclass(frozen=True)
class Thing:
    rate: float = 0.5
    count: int = 3
    loud: bool = False
    mode: Literal["ratio", "size"] = "size"
    word: str = "plain"


KNOWN = {field.name: field for field in fields(Thing)}
THINGS = st.builds(
    Thing,
    rate=st.floats(allow_nan=False, allow_infinity=False),
    count=st.integers(),
    loud=st.booleans(),
    mode=st.sampled_from(["ratio", "size"]),
    word=st.from_regex(r"[a-z][a-z0-9_-]*", fullmatch=True),
)


def read(inside: str) -> Thing:
    return Thing(**spelling.values("thing", KNOWN, inside, PlanError))  # type: ignore[arg-type]


# Things with fields


@given(THINGS, st.integers(0, 5))
def test_reading_undoes_spelling(thing: Thing, always: int) -> None:
    text = spelling.spelled("thing", KNOWN, thing, always=always)
    name, inside = spelling.name_and_inside(text, "thing", {"thing": None}, PlanError)
    assert name == "thing"
    assert read(inside) == thing


@given(THINGS)
def test_only_changed_fields_are_spelled(thing: Thing) -> None:
    text = spelling.spelled("thing", KNOWN, thing)
    changed = [name for name in KNOWN if getattr(thing, name) != getattr(Thing(), name)]
    assert [part.split("=")[0] for part in text[6:-1].split(", ") if part] == changed
    assert (text == "thing") == (not changed)


def test_the_first_fields_can_always_be_spelled_without_their_names() -> None:
    assert spelling.spelled("thing", KNOWN, Thing(), always=2) == "thing(0.5, 3)"
    assert spelling.spelled("thing", KNOWN, Thing(2.0, mode="ratio"), always=1) == "thing(2, mode=ratio)"
    assert spelling.spelled("thing", KNOWN, Thing(2.0, loud=True)) == "thing(rate=2, loud=true)"


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_are_shown_exactly(value: float) -> None:
    assert float(spelling.shown(value)) == value


@pytest.mark.parametrize(
    ("inside", "thing"),
    [
        ("", Thing()),
        ("   ", Thing()),
        ("2", Thing(rate=2.0)),
        ("1e-3, 7", Thing(rate=0.001, count=7)),
        (" RATE = 2 ,\n MODE = Ratio ", Thing(rate=2.0, mode="ratio")),
        ("loud=yes", Thing(loud=True)),
        ("loud=1, count=-4", Thing(loud=True, count=-4)),
        ("2, loud=FALSE, word=other", Thing(rate=2.0, word="other")),
    ],
)
def test_fields_are_read_by_place_and_by_name(inside: str, thing: Thing) -> None:
    assert read(inside) == thing
    assert [type(value) for value in vars(read(inside)).values()] == [float, int, bool, str, str]


@pytest.mark.parametrize(
    ("inside", "message"),
    [
        ("rat=1", r"unknown field of thing 'rat'; did you mean 'rate'"),
        ("xyz=1", r"unknown field of thing 'xyz'\. Known: rate, count, loud, mode, word"),
        ("rate=1, rate=2", r"thing: rate is given twice in \(rate=1, rate=2\)"),
        ("1, rate=2", r"thing: rate is given twice"),
        (
            "1, 2, no, size, word, 6",
            r"thing takes rate, count, loud, mode, word and no more, got '6' too",
        ),
        ("rate=fast", r"thing: rate must be a finite number, got 'fast'"),
        ("rate=nan", r"thing: rate must be a finite number, got 'nan'"),
        ("rate=inf", r"thing: rate must be a finite number, got 'inf'"),
        ("rate=", r"thing: rate must be a finite number, got ''"),
        ("1,", r"thing: count must be a whole number, got ''"),
        ("count=1.5", r"thing: count must be a whole number, got '1.5'"),
        ("loud=maybe", r"thing: loud must be true or false, got 'maybe'"),
        ("mode=rat", r"thing: unknown mode 'rat'; did you mean 'ratio'\? Known: ratio, size"),
    ],
)
@pytest.mark.parametrize("error", [PlanError, DataError])
def test_a_slip_is_told_by_name(inside: str, message: str, error: type[Any]) -> None:
    with pytest.raises(error, match=message):
        spelling.values("thing", KNOWN, inside, error)


def test_a_thing_without_fields_takes_none() -> None:
    assert spelling.values("bare", {}, "", PlanError) == {}
    with pytest.raises(PlanError, match="bare takes no fields, got '3'"):
        spelling.values("bare", {}, "3", PlanError)
    with pytest.raises(PlanError, match="bare takes no fields, got 'a=3'"):
        spelling.values("bare", {}, " a=3", PlanError)


@pytest.mark.parametrize(
    "text", ["", "  ", "thing(", "thing)", "thing(1)x", "(1)", "th ing", "thing=1", "a,b"]
)
def test_what_does_not_read_like_a_name_is_refused(text: str) -> None:
    with pytest.raises(PlanError, match=r"a method reads like name or name\(field=value\), got"):
        spelling.name_and_inside(text, "method", {"thing": None}, PlanError)


# Methods


def test_every_name_is_its_own_spelling() -> None:
    for name, method in METHODS.items():
        assert parse(name) == method
        assert type(parse(name)) is type(method)
        assert canonical(name) == name
        assert canonical(f"  {name.upper()} ( ) ") == name


@given(st.sampled_from(sorted(METHODS)), st.data())
def test_the_canonical_spelling_stands_for_the_same_method(name: str, data: st.DataObject) -> None:
    known = {field.name: str(field.type) for field in fields(METHODS[name])}  # type: ignore[arg-type]
    chosen = data.draw(st.lists(st.sampled_from(sorted(known)), unique=True)) if known else []
    values = [data.draw(value_of(known[field])) for field in chosen]
    text = f"{name}({','.join(f'{field} = {value}' for field, value in zip(chosen, values, strict=True))})"
    method = parse(text)
    assert parse(canonical(text)) == method
    assert type(parse(canonical(text))) is type(method)
    assert canonical(canonical(text)) == canonical(text)
    for field, value in zip(chosen, values, strict=True):
        assert getattr(method, field) == value


INSIDE = st.floats(0, 1, exclude_min=True, exclude_max=True)  # every method's numbers may be such


def value_of(annotation: str) -> st.SearchStrategy[Any]:
    if annotation.startswith("Literal"):
        return st.sampled_from([word for word in annotation.split('"')[1::2] or annotation.split("'")[1::2]])
    return {
        "float": INSIDE,
        "float | None": st.none() | INSIDE,
        "int": st.integers(1, 9),
        "int | None": st.none() | st.integers(1, 9),
        "bool": st.sampled_from([True, False]),
        "str": st.just("word"),
    }[annotation]


@given(st.floats(0, 10), st.floats(0, 10))
def test_different_methods_are_spelled_differently(a: float, b: float) -> None:
    assume(a != b)
    assert canonical(f"fedakd(alpha={a!r})") != canonical(f"fedakd(alpha={b!r})")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("fedakd(select=all)", "fedakd-all-data"),
        ("fedakd(local_update=overwrite)", "fedakd-single-dist"),
        ("fedakd(weigh_by=correct)", "fedakd-correct-agg"),
        ("fedakd(alpha=1, beta=1.0)", "fedakd"),
        ("fedakd-all-data(select=correct)", "fedakd"),
        ("fedakd-all-data(alpha=0.5)", "fedakd(alpha=0.5, select=all)"),
        ("fedakd(0.5, temperature=2)", "fedakd(alpha=0.5, temperature=2)"),
        ("fedakd(beta=2, alpha=0.50)", "fedakd(alpha=0.5, beta=2)"),
        ("FedAvg", "fedavg"),
    ],
)
def test_ablations_have_one_canonical_name(text: str, name: str) -> None:
    assert canonical(text) == name


def test_methods_are_of_their_own_class() -> None:
    assert type(parse("fedavg")) is FedAvg
    assert type(parse("standalone")) is Standalone
    assert parse("fedakd(alpha=0.25, order=released)") == FedAKD(alpha=0.25, order="released")
    assert METHODS["fedakd"] == FedAKD()  # parsing made a new one


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fedavk", r"unknown method 'fedavk'; did you mean 'fed(akd|avg|ave)' or 'fed(akd|avg|ave)'"),
        ("fedakd(alpa=1)", r"unknown field of fedakd 'alpa'; did you mean 'alpha'"),
        ("fedakd(select=some)", r"fedakd: unknown select 'some'.* Known: correct, all"),
        ("fedakd(alpha=x)", r"fedakd: alpha must be a finite number, got 'x'"),
        ("standalone(1, 0, orig, 2)", r"standalone takes restart, sgd, preset and no more, got '2' too"),
        ("standalone(restart=2)", r"standalone: restart must be true or false, got '2'"),
        ("fedakd(alpha=1", r"a method reads like"),
    ],
)
def test_a_slip_in_a_method_is_told(text: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        parse(text)
    with pytest.raises(PlanError, match=message):
        canonical(text)
