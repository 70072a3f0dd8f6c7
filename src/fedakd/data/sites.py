"""A folder with one file a site: tables of numbers, as CSV or NPZ, the same columns everywhere."""

from __future__ import annotations

import csv
import math
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedakd.data.cells import Wrong, refuse, unusable
from fedakd.errors import DataError

if TYPE_CHECKING:
    from fedakd.examples import Examples

SUFFIXES = (".csv", ".npz")
BLANK = ("", "nan")  # no label


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of numbers with their labels, and the site each row comes from."""

    name: str
    classes: int
    x: NDArray[np.float64]  # (N, F)
    y: NDArray[np.int64]
    groups: NDArray[Any]  # (N,), names of sites
    columns: tuple[str, ...]

    def examples(self, rows: NDArray[np.int64]) -> Examples:
        import torch

        from fedakd.examples import Examples

        return Examples(torch.from_numpy(self.x[rows]).float(), torch.from_numpy(self.y[rows]))


@dataclass(frozen=True, eq=False)
class _File:
    path: Path
    columns: tuple[str, ...]
    x: NDArray[np.float64]
    labels: NDArray[Any] | None


def load_sites(folder: Path, label: str | None = None) -> Table:
    """All files of a folder; a site is called as its file without suffix.

    A CSV file has a line of column names, then numbers; the column of labels may be text. It is `label`, or
    where that is None the one of this name, if there is one. An NPZ file has the arrays `x` (rows, features)
    and, if there are labels, `y`.
    """
    if not folder.is_dir():
        raise DataError(f"expected a folder with one file a site, got {folder}, which is none")
    paths = sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)
    if not paths:
        raise DataError(f"{folder}: expected files {' or '.join('*' + one for one in SUFFIXES)}, found none")
    names = [path.stem for path in paths]
    if twice := {name for name in names if names.count(name) > 1}:
        raise DataError(f"{folder}: expected one file a site, got two of {sorted(twice)[0]!r}")
    files = [_read(path, label) for path in paths]
    _check_alike(files)
    y, classes = _classes(files)
    groups = np.repeat([one.path.stem for one in files], [len(one.x) for one in files])
    x = np.concatenate([one.x for one in files])
    return Table(folder.name or str(folder), classes, x, y, groups, files[0].columns)


def _read(path: Path, label: str | None) -> _File:
    file = _read_csv(path, label) if path.suffix.lower() == ".csv" else _read_npz(path)
    if not len(file.x) or not file.x.shape[1]:
        raise DataError(f"{path}: expected rows of numbers, got {len(file.x)} rows of {file.x.shape[1]}")
    return file


def _read_csv(path: Path, label: str | None) -> _File:
    names, rows = _lines(path)
    if label is not None and label not in names:
        raise DataError(f"{path}: expected a column {label!r} of labels, found {', '.join(names)}")
    wanted = "label" if label is None else label
    at = names.index(wanted) if wanted in names else None
    places = [place for place in range(len(names)) if place != at]
    x = np.array([[_number(line[place]) for place in places] for _, line in rows], dtype=np.float64)
    x = x.reshape(len(rows), len(places))
    wrong = [(*rows[row], places[column], float(x[row, column])) for row, column in unusable(x)]
    refuse(path, [Wrong(f"line {n}, column {names[k]!r}", line[k].strip(), v) for n, line, k, v in wrong])
    labels = None if at is None else np.array([line[at].strip() for _, line in rows])
    if labels is not None:
        _check_labels(path, labels, [f"line {number}, column {wanted!r}" for number, _ in rows])
    return _File(path, tuple(names[place] for place in places), x, labels)


def _check_labels(path: Path, labels: NDArray[Any], places: list[str]) -> None:
    """A label for every row; a word that would be a missing value elsewhere may be the name of a class."""
    texts = np.char.lower(labels.astype(str))
    wrong = [Wrong(places[k], str(labels[k]), math.nan) for k in np.flatnonzero(np.isin(texts, BLANK))]
    refuse(path, wrong, "a label for every row")


def _lines(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Column names, and the lines that are not empty with their numbers."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            lines = list(csv.reader(stream))
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: expected comma-separated text in UTF-8, got {error}") from error
    if not lines:
        raise DataError(f"{path}: expected a line of column names, then rows, got an empty file")
    names, rows = [name.strip() for name in lines[0]], [(n, row) for n, row in enumerate(lines[1:], 2) if row]
    for number, row in rows:
        if len(row) != len(names):
            raise DataError(f"{path}, line {number}: expected {len(names)} values, got {len(row)}")
    return names, rows


def _number(cell: str) -> float:
    """The number in a cell; nan if there is none."""
    try:
        return float(cell)
    except ValueError:
        return math.nan


def _read_npz(path: Path) -> _File:
    arrays = _arrays(path)
    if "x" not in arrays or arrays["x"].dtype.kind not in "iuf" or not arrays["x"].ndim:
        kind = f"x of {arrays['x'].dtype}" if "x" in arrays else "none of that name"
        raise DataError(f"{path}: expected an array x of numbers (rows, features), found {kind}")
    x = arrays["x"].reshape(len(arrays["x"]), -1).astype(np.float64)
    wrong = [(row, column, float(x[row, column])) for row, column in unusable(x)]
    refuse(path, [Wrong(f"row {row + 1}, column 'x{at}'", str(value), value) for row, at, value in wrong])
    labels = arrays.get("y")
    if labels is not None and labels.shape != (len(x),):
        raise DataError(f"{path}: expected one label a row, {len(x)}, got an array y of {labels.shape}")
    if labels is not None:
        _check_labels(path, labels, [f"row {number}, array y" for number in range(1, len(x) + 1)])
    return _File(path, tuple(f"x{column}" for column in range(x.shape[1])), x, labels)


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an NPZ file, which is a ZIP archive of NPY files."""
    expected = f"{path}: expected an NPZ file with arrays x and y, as numpy.savez writes it"
    if not zipfile.is_zipfile(path):
        raise DataError(f"{expected}, got {path.stat().st_size} bytes that are no NPZ file; save it again")
    try:
        with np.load(path, allow_pickle=False) as stored:
            return {name: _array(stored, name) for name in stored.files if name in ("x", "y")}
    except (
        OSError,
        ValueError,
        EOFError,
        TypeError,
        AttributeError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise DataError(f"{expected}, got {error}; save it again") from error


def _array(stored: Any, name: str) -> NDArray[Any]:
    try:
        array = stored[name]
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        raise ValueError(
            f"an array {name} of Python objects (save {name}.astype(float), or .astype(str) for labels)"
        ) from error
    if not isinstance(array, np.ndarray):
        raise ValueError(f"an entry {name} that is no array")
    return array


def _check_alike(files: list[_File]) -> None:
    first = files[0]
    for other in files[1:]:
        if other.columns != first.columns:
            missing = [name for name in first.columns if name not in other.columns]
            extra = [name for name in other.columns if name not in first.columns]
            told = f"missing {missing[:3]}, beyond them {extra[:3]}" if missing or extra else "another order"
            raise DataError(f"{other.path}: expected the columns of {first.path.name}, got {told}")
        if (other.labels is None) != (first.labels is None):
            raise DataError(f"{other.path} and {first.path}: labels are in one of them only")


def _classes(files: list[_File]) -> tuple[NDArray[np.int64], int]:
    """Labels as class numbers, in the order of their names; all 0 where there are none."""
    labels = [one.labels for one in files if one.labels is not None]
    if not labels:
        return np.zeros(sum(len(one.x) for one in files), dtype=np.int64), 1
    names, y = np.unique(_numbers(np.concatenate(labels)), return_inverse=True)
    return y.astype(np.int64), len(names)


def _numbers(labels: NDArray[Any]) -> NDArray[Any]:
    """As numbers, if all are: "1" at one site and "1.0" at another are the same class."""
    try:
        numbers = labels.astype(np.float64)
    except ValueError:
        return labels
    if not np.isfinite(numbers).all():
        raise DataError("expected labels that are finite numbers or names, got inf; give it another name")
    return numbers
