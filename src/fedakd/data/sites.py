"""A folder with one file a site: tables of numbers, as CSV or NPZ, the same columns everywhere."""

from __future__ import annotations

import csv
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedakd.errors import DataError

if TYPE_CHECKING:
    from fedakd.examples import Examples

SUFFIXES = (".csv", ".npz")


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
    wrong = np.argwhere(~np.isfinite(file.x))
    if len(wrong):
        row, column = wrong[0]
        raise DataError(
            f"{path}: row {row + 1}, column {file.columns[column]!r}: expected a finite number, got "
            f"{file.x[row, column]}; fill in or leave out what is missing"
        )
    return file


def _read_csv(path: Path, label: str | None) -> _File:
    names, rows = _lines(path)
    if label is not None and label not in names:
        raise DataError(f"{path}: expected a column {label!r} of labels, found {', '.join(names)}")
    wanted = "label" if label is None else label
    at = names.index(wanted) if wanted in names else None
    columns = tuple(name for place, name in enumerate(names) if place != at)
    values = [
        [_number(cell, path, number, names[place]) for place, cell in enumerate(line) if place != at]
        for number, line in rows
    ]
    labels = None if at is None else np.array([line[at].strip() for _, line in rows])
    if labels is not None and (labels == "").any():
        line = rows[int(np.flatnonzero(labels == "")[0])][0]
        raise DataError(f"{path}, line {line}: expected a label in column {wanted!r}, got nothing")
    return _File(path, columns, np.array(values, dtype=np.float64).reshape(len(rows), len(columns)), labels)


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


def _number(cell: str, path: Path, line: int, column: str) -> float:
    try:
        return float(cell)
    except ValueError:
        raise DataError(
            f"{path}, line {line}, column {column!r}: expected a number, got {cell!r}; turn words into "
            "numbers, or name the column of labels with --label"
        ) from None


def _read_npz(path: Path) -> _File:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            found = {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, EOFError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: expected an NPZ file with arrays x and y, got {error}") from error
    if "x" not in found or not np.issubdtype(found["x"].dtype, np.number) or not found["x"].ndim:
        raise DataError(f"{path}: expected an array x of numbers (rows, features), found {sorted(found)}")
    x = found["x"].reshape(len(found["x"]), -1).astype(np.float64)
    labels = found.get("y")
    if labels is not None and labels.shape != (len(x),):
        raise DataError(f"{path}: expected one label a row, {len(x)}, got an array y of {labels.shape}")
    return _File(path, tuple(f"x{column}" for column in range(x.shape[1])), x, labels)


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
        raise DataError(
            "expected a label for every row, got nan or inf; fill in or leave out what is missing"
        )
    return numbers
