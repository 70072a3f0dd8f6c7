"""A folder with one file a site: read whole, or refused with the place and what to do."""

from __future__ import annotations

import pickle
import zipfile

import numpy as np
import pytest
import torch

from fedakd.data.sites import load_sites
from fedakd.errors import DataError

CSV = "age,bmi,label\n50,21.5,sick\n61,30,well\n"


def test_csv_and_labels_by_name(tmp_path):
    (tmp_path / "north.csv").write_text(CSV)
    (tmp_path / "south.csv").write_text("age,bmi,label\n40,25,well\n")
    (tmp_path / "notes.txt").write_text("not a site")
    table = load_sites(tmp_path)
    assert table.columns == ("age", "bmi")
    assert table.groups.tolist() == ["north", "north", "south"]
    assert table.x.tolist() == [[50, 21.5], [61, 30], [40, 25]]
    assert (table.y.tolist(), table.classes) == ([0, 1, 1], 2)
    assert table.examples(np.array([2])).x.tolist() == [[40, 25]]


def test_another_column_of_labels_or_none(tmp_path):
    (tmp_path / "a.csv").write_text("age,dead\n50,0\n61,1\n")
    assert load_sites(tmp_path, label="dead").y.tolist() == [0, 1]
    table = load_sites(tmp_path)
    assert (table.columns, table.classes, table.y.tolist()) == (("age", "dead"), 1, [0, 0])


def test_the_same_number_written_in_two_ways_is_one_class(tmp_path):
    (tmp_path / "a.csv").write_text("age,label\n1,0\n2,1\n")
    (tmp_path / "b.csv").write_text("age,label\n3,0.0\n\n4,1.0\n")
    assert (load_sites(tmp_path).y.tolist(), load_sites(tmp_path).classes) == ([0, 1, 0, 1], 2)


def test_npz(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.arange(12).reshape(2, 2, 3), y=np.array([3, 7]))
    np.savez(tmp_path / "b.npz", x=np.ones((1, 2, 3)), y=np.array([7]))
    table = load_sites(tmp_path)
    assert table.x.shape == (3, 6)
    assert table.y.tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "expected files \\*.csv or \\*.npz, found none"),
        ({"a.csv": ""}, "a.csv: expected a line of column names"),
        ({"a.csv": "age\n"}, "a.csv: expected rows of numbers, got 0 rows of 1"),
        (
            {"a.csv": "age,sex\n50,F\n"},
            "line 2, column 'sex': got 'F'. What to do: turn words",
        ),
        ({"a.csv": "age,bmi\n50\n"}, "line 2: expected 2 values, got 1"),
        ({"a.csv": "age\nnan\n"}, "line 2, column 'age': got 'nan'. What to do: fill in missing values"),
        ({"a.csv": "age\n1\n1e308\n"}, "line 3, column 'age': got '1e308'. What to do: write finite numbers"),
        ({"a.csv": "age\n-inf\n"}, "line 2, column 'age': got '-inf'. What to do: write finite numbers"),
        (
            {"a.csv": "age,sex\n?,F\n ,M\n3,\nNA,F\n"},
            "7 values are none: line 2, column 'age': got '\\?'; line 2, column 'sex': got 'F'; "
            "line 3, column 'age': got ''; and 4 more. What to do: fill in missing values, .*; turn words",
        ),
        (
            {"a.csv": CSV, "b.csv": "age,weight,label\n1,2,well\n"},
            "b.csv: expected the columns of a.csv, got missing \\['bmi'\\]",
        ),
        ({"a.csv": CSV, "b.csv": "bmi,age,label\n1,2,well\n"}, "another order"),
        ({"a.csv": CSV, "b.csv": "age,bmi\n1,2\n"}, "labels are in one of them only"),
        ({"a.npz": "no zip"}, "a.npz: expected an NPZ file with arrays x and y"),
        ({"a.npz": ""}, "a.npz: expected an NPZ file with arrays x and y"),
        (
            {"a.csv": "age,label\\n1,\\n".replace("\\n", chr(10))},
            "expected a label for every row, 1 value is none: line 2, column 'label': got ''.",
        ),
        ({"a.csv": "age" + chr(10) + chr(10) + "x" + chr(10)}, "line 3, column 'age': got 'x'"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(tmp_path, files, said):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=said):
        load_sites(tmp_path)


def test_a_column_of_labels_that_is_not_there_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text(CSV)
    with pytest.raises(DataError, match="expected a column 'outcome' of labels, found age, bmi, label"):
        load_sites(tmp_path, label="outcome")


def test_other_encodings_are_refused(tmp_path):
    (tmp_path / "a.csv").write_bytes("größe\n1\n".encode("latin-1"))
    with pytest.raises(DataError, match="expected comma-separated text in UTF-8"):
        load_sites(tmp_path)


def test_two_files_of_one_site_and_labels_that_are_no_numbers_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text("x0,label\n1,nan\n")
    with pytest.raises(DataError, match=r"a\.csv: expected a label for every row, .* line 2, column 'label'"):
        load_sites(tmp_path)
    (tmp_path / "a.csv").write_text("x0,label\n1,inf\n")
    with pytest.raises(DataError, match="expected labels that are finite numbers or names, got inf"):
        load_sites(tmp_path)
    np.savez(tmp_path / "a.npz", x=np.ones((2, 1)), y=np.ones(2))
    with pytest.raises(DataError, match="expected one file a site, got two of 'a'"):
        load_sites(tmp_path)


def test_an_array_with_a_missing_label_is_refused(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.ones((3, 1)), y=np.array([0, np.nan, 1]))
    with pytest.raises(
        DataError, match=r"a\.npz: expected a label for every row, .* row 2, array y: got 'nan'"
    ):
        load_sites(tmp_path)


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "a.csv").write_text(CSV)
    with pytest.raises(DataError, match="expected a folder with one file a site"):
        load_sites(tmp_path / "a.csv")


def test_wrong_arrays_are_refused(tmp_path):
    np.savez(tmp_path / "a.npz", rows=np.ones((2, 2)))
    with pytest.raises(
        DataError, match=r"expected an array x of numbers \(rows, features\), found none of that name"
    ):
        load_sites(tmp_path)
    np.savez(tmp_path / "a.npz", x=np.ones((2, 2), dtype=complex))
    with pytest.raises(DataError, match=r"expected an array x of numbers .* found x of complex128"):
        load_sites(tmp_path)
    np.savez(tmp_path / "a.npz", x=np.ones((2, 2)), y=np.ones(3))
    with pytest.raises(DataError, match=r"expected one label a row, 2, got an array y of \(3,\)"):
        load_sites(tmp_path)


@pytest.mark.parametrize("value", [np.nan, np.inf, -1e308])
def test_an_array_with_a_value_that_is_no_finite_number_is_refused(tmp_path, value):
    x = np.ones((4, 3))
    x[2, 1] = value
    np.savez(tmp_path / "a.npz", x=x)
    with pytest.raises(
        DataError, match=r"a\.npz: expected finite numbers, 1 value is none: row 3, column 'x1': got"
    ):
        load_sites(tmp_path)


def refusal(path) -> str:
    with pytest.raises(DataError) as caught:
        load_sites(path)
    return str(caught.value)


def test_nobody_is_told_to_allow_pickle(tmp_path):
    """NumPy's own words advise to run whatever the file says."""
    path = tmp_path / "a.npz"
    objects = {"x": np.ones((2, 2)), "y": np.array(["sick", None], dtype=object)}
    np.savez(path, **objects)
    assert "an array y of Python objects (save y.astype(float), or .astype(str) for labels)" in refusal(
        tmp_path
    )
    whole = path.read_bytes()
    np.save(tmp_path / "a", np.ones(3))
    contents = [
        pickle.dumps([1, 2]),
        b"\x80\x04garbage",
        whole[: len(whole) // 2],
        (tmp_path / "a.npy").read_bytes(),
    ]
    for content in contents:
        path.write_bytes(content)
        said = refusal(tmp_path)
        assert (
            f"a.npz: expected an NPZ file with arrays x and y, as numpy.savez writes it, got {len(content)}"
            in said
        )
        assert "pickle" not in said


def test_an_archive_of_something_else_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", b"garbage")
    said = refusal(tmp_path)
    assert "a.npz: expected an NPZ file" in said
    assert "got an entry x that is no array" in said


def test_the_largest_number_that_models_can_hold_passes(tmp_path):
    (tmp_path / "a.csv").write_text("age\n3.4028234e38\n-3.4e38\n 7 \n")
    assert torch.isfinite(load_sites(tmp_path).examples(np.arange(3)).x).all()
