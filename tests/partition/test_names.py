"""Partitions as text."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedakd.errors import PartitionError
from fedakd.partition import (
    PARTITIONS,
    ByGroup,
    ClassLadder,
    Dirichlet,
    Equal,
    GaussianShift,
    Partition,
    PowerLaw,
    parse,
    text,
)

positive = st.floats(min_value=1e-300, max_value=1e300)
partitions = st.one_of(
    st.builds(Equal),
    st.builds(PowerLaw, st.floats(0, 10)),
    st.builds(ClassLadder),
    st.builds(Dirichlet, positive),
    st.builds(ByGroup),
    st.builds(
        GaussianShift,
        c=positive,
        sizes=st.sampled_from(["equal", "power"]),
        mode=st.sampled_from(["calibrated", "ratio", "density"]),
        dims=st.integers(1, 999),
        replacement=st.booleans(),
        directions=st.integers(1, 99),
        force=st.booleans(),
        features=st.sampled_from(["pca", "raw"]),
    ),
    st.builds(GaussianShift, kl=positive, sizes=st.sampled_from(["equal", "power"])),
    st.builds(
        GaussianShift,
        c=st.one_of(st.just(0.0), positive),
        c_cov=positive,
        cov=st.sampled_from(["scale", "widen", "narrow", "rotate"]),
    ),
)


@given(partitions)
def test_text_parses_back(partition: Partition) -> None:
    assert parse(text(partition)) == partition
    assert text(parse(text(partition).upper())) == text(partition)


def test_the_first_field_is_always_told() -> None:
    assert [text(parse(name)) for name in ("pow", "bcs", "ics", "cla")] == [
        "pow(1)",
        "bcs(5)",
        "ics(5)",
        "cla",
    ]


@pytest.mark.parametrize(
    ("written", "partition"),
    [
        ("iid", Equal()),
        ("POW", PowerLaw(1.0)),
        ("pow(1.2)", PowerLaw(1.2)),
        ("bcs", GaussianShift(5.0)),
        (" ICS ( 2 ) ", GaussianShift(2.0, sizes="power")),
        ("ics(5, mode=ratio, dims=20)", GaussianShift(5.0, sizes="power", mode="ratio", dims=20)),
        ("bcs(force=yes, c=1e1)", GaussianShift(10.0, force=True)),
        ("bcs(5, ratio)", GaussianShift(5.0, mode="ratio")),
        ("bcs(replacement=False)", GaussianShift(5.0, replacement=False)),
        ("ics(5, c_cov=0.3, cov=scale)", GaussianShift(5.0, sizes="power", c_cov=0.3)),
        ("bcs(c_cov=0.3, cov=rotate)", GaussianShift(5.0, c_cov=0.3, cov="rotate")),
        ("ics(kl=1.5)", GaussianShift(kl=1.5, sizes="power")),
        ("ics(2, features=raw)", GaussianShift(2.0, sizes="power", features="raw")),
        ("cla()", ClassLadder()),
        ("dir(alpha=0.5)", Dirichlet(0.5)),
    ],
)
def test_what_people_write(written: str, partition: Partition) -> None:
    assert parse(written) == partition


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("isc(5)", r"unknown partition 'isc'; did you mean 'ics'"),
        ("ics(5", r"reads like name or name\(field=value\), got 'ics\(5'"),
        ("", "reads like"),
        ("ics(much)", "ics: c must be a finite number or none, got 'much'"),
        ("ics(5, dims=2.5)", "ics: dims must be a whole number, got '2.5'"),
        ("ics(5, force=perhaps)", "ics: force must be true or false"),
        ("ics(5, mod=ratio)", r"unknown field of ics 'mod'; did you mean 'mode'.*Known: c, mode, dims"),
        ("ics(5, sizes=equal)", "unknown field of ics 'sizes'"),
        ("ics(5, mode=rati)", "did you mean 'ratio'"),
        ("ics(5, c=6)", "ics: c is given twice"),
        ("dir(1, 2)", "dir takes alpha and no more, got '2' too"),
        ("dir", r"dir needs alpha, as in dir\(0.5\)"),
        ("cla(3)", "cla takes no fields, got '3'"),
        ("ics(-5)", "must be positive and finite, got -5.0"),
        ("ics(5, kl=2)", "leave out c and c_cov, or kl"),
        ("dir(nan)", "alpha must be a finite number"),
    ],
)
def test_what_people_mistype(written: str, message: str) -> None:
    with pytest.raises(PartitionError, match=message):
        parse(written)


def test_what_is_not_used_is_not_told() -> None:
    assert text(parse("ics(kl=1.5)")) == "ics(kl=1.5)"
    assert text(parse("bcs(0, c_cov=0.3)")) == "bcs(0, c_cov=0.3)"


def test_every_name_has_a_one_line_summary() -> None:
    assert list(PARTITIONS) == ["iid", "pow", "bcs", "ics", "cla", "dir", "group"]
    assert all(entry.summary and "\n" not in entry.summary for entry in PARTITIONS.values())


def test_a_partition_of_ones_own_shows_its_repr() -> None:
    class Mine(Equal):
        def __repr__(self) -> str:
            return "Mine()"

    assert text(Mine()) == "Mine()"


def test_importing_partitions_loads_no_heavy_library() -> None:
    heavy = "{'torch', 'scipy', 'sklearn'} & {*sys.modules}"
    code = f"import sys, fedakd.partition, fedakd.federation; print({heavy})"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "set()"
