from __future__ import annotations

from pathlib import Path

import pytest

from fedakd.data import load
from fedakd.data.store import DEBIAN, Advice, absent, candidates, roots, writable
from fedakd.errors import DataError


def test_places_are_searched_in_the_promised_order(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDAKD_DATA", str(tmp_path / "env"))
    expected = [tmp_path / "arg", tmp_path / "env", tmp_path / "cache" / "fedakd", DEBIAN]
    assert list(roots(tmp_path / "arg").values()) == expected


@pytest.mark.parametrize("value", [None, ""])
def test_without_argument_and_variable_the_cache_comes_first(tmp_path, monkeypatch, value):
    if value is not None:
        monkeypatch.setenv("FEDAKD_DATA", value)
    assert list(roots(None)) == ["the cache", "Debian's folder"]


def test_each_root_may_hold_the_files_in_a_folder_of_the_name_or_directly(tmp_path):
    assert candidates("clothes", tmp_path)[:2] == [tmp_path / "clothes", tmp_path]


def test_a_tilde_is_the_home_folder():
    assert roots(Path("~/images"))["--data-dir"] == Path.home() / "images"


def test_downloads_go_to_the_first_folder_that_can_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("FEDAKD_DATA", str(tmp_path / "env"))
    assert writable("clothes", tmp_path / "arg") == tmp_path / "arg" / "clothes"
    assert writable("clothes", tmp_path / "file") == tmp_path / "env" / "clothes"
    monkeypatch.delenv("FEDAKD_DATA")
    assert writable("clothes", tmp_path / "file") == tmp_path / "cache" / "fedakd" / "clothes"


def test_no_writable_folder_names_those_that_refused(tmp_path, monkeypatch):
    (tmp_path / "cache").touch()
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"no folder to put clothes in: .*file \(--data-dir\).*\(the cache\)"):
        writable("clothes", tmp_path / "file")


def test_absence_names_every_place_and_every_way_out(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDAKD_DATA", str(tmp_path / "env"))
    advice = Advice("https://example.org/clothes", "a.gz, b.gz", "dataset-clothes")
    said = str(absent("clothes", tmp_path / "arg", advice, "no route to host"))
    for folder in candidates("clothes", tmp_path / "arg"):
        assert str(folder) in said
    for hint in ("fedakd data get clothes", "apt-get install dataset-clothes", "--data-dir FOLDER"):
        assert hint in said
    for fact in ("FEDAKD_DATA=FOLDER", "https://example.org/clothes", "a.gz, b.gz", "no route to host"):
        assert fact in said


def test_absence_mentions_no_package_and_no_download_where_there_was_none():
    said = str(absent("clothes", None, Advice("https://example.org", "a.gz")))
    assert "apt-get" not in said
    assert "failed" not in said


@pytest.mark.parametrize("name", ["digits", "fashion-mnist"])
def test_a_folder_that_is_named_and_not_there_is_an_error(tmp_path, monkeypatch, name):
    (tmp_path / "file").touch()
    with pytest.raises(
        DataError, match=r"--data-dir: expected a folder, .*nowhere does not exist; create it"
    ):
        load(name, tmp_path / "nowhere", download=False)
    with pytest.raises(DataError, match=r"--data-dir: expected a folder, .*file is a file"):
        load(name, tmp_path / "file", download=False)
    monkeypatch.setenv("FEDAKD_DATA", str(tmp_path / "gone"))
    with pytest.raises(DataError, match=r"\$FEDAKD_DATA: expected a folder, .*gone does not exist"):
        load(name, download=False)


def test_a_folder_that_is_there_is_no_error(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDAKD_DATA", str(tmp_path))
    assert len(load("digits", tmp_path)) == 1797
