from __future__ import annotations

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from fedakd import data
from fedakd.cli.data import app
from fedakd.data import DATASETS, load
from fedakd.errors import DataError


@pytest.fixture
def known(tiny, monkeypatch):
    """The tiny dataset is known by its name, and its server is the test's own."""
    monkeypatch.setitem(DATASETS, "tiny", tiny)
    return tiny


def run(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args], env={"COLUMNS": "300"})


def test_every_dataset_is_listed_with_its_size_and_place(known, zipped, tmp_path):
    for name, content in zipped.items():
        (tmp_path / name).write_bytes(content)
    result = run("list", "--data-dir", tmp_path)
    assert result.exit_code == 0
    lines = {line.split()[1]: line for line in result.stdout.splitlines() if line.startswith("│")}
    assert set(lines) == {"digits", "fashion-mnist", "cifar10", "tiny"}
    assert str(tmp_path) in lines["tiny"]
    assert "70000" in lines["fashion-mnist"]
    assert "3 x 32 x 32" in lines["cifar10"]
    assert "not found" in lines["cifar10"]


def test_the_list_as_json(known, tmp_path):
    rows = {row["name"]: row for row in json.loads(run("list", "--json", "--data-dir", tmp_path).stdout)}
    assert rows["tiny"]["found"] is None
    assert rows["tiny"]["rows"] == 10
    assert rows["digits"]["found"].startswith("scikit-learn")


def test_get_downloads_once(known, zipped, site, tmp_path):
    site.files = zipped
    first, second = (run("get", "tiny", "--data-dir", tmp_path) for _ in range(2))
    assert (first.exit_code, second.exit_code) == (0, 0)
    assert "tiny: downloaded, 10 rows" in first.stdout
    assert "train-images-idx3-ubyte.gz" in first.stderr
    assert "tiny: was already here, 10 rows" in second.stdout
    assert len(site.asked) == 4


def test_get_as_json_prints_nothing_but_json(known, zipped, site, tmp_path):
    site.files = zipped
    answer = json.loads(run("get", "tiny", "--json", "--data-dir", tmp_path).stdout)
    assert answer["downloaded"] is True
    assert answer["found"] == str(tmp_path / "tiny")
    assert "official" in answer["origin"]


def test_check_judges_each_file_and_exits_with_1_if_one_is_bad(known, zipped, tmp_path):
    for name, content in zipped.items():
        (tmp_path / name).write_bytes(content)
    good = run("check", "tiny", "--data-dir", tmp_path)
    assert (good.exit_code, good.stdout.count("good"), good.stderr) == (0, 4, "")
    (tmp_path / "t10k-labels-idx1-ubyte.gz").write_bytes(b"junk")
    bad = run("check", "tiny", "--data-dir", tmp_path)
    assert bad.exit_code == 1
    assert "sha256 must be" in bad.stderr
    assert str(tmp_path / "t10k-labels-idx1-ubyte.gz") in bad.stderr


def test_check_as_json(known, zipped, tmp_path):
    for name, content in zipped.items():
        (tmp_path / name).write_bytes(content)
    verdicts = json.loads(run("check", "tiny", "--json", "--data-dir", tmp_path).stdout)
    assert [verdict["ok"] for verdict in verdicts] == [True] * 4


def test_check_of_digits_needs_no_folder():
    result = run("check", "digits")
    assert result.exit_code == 0
    assert "1797 images" in result.stdout


@pytest.mark.parametrize("command", ["get", "check"])
def test_an_unknown_name_raises_with_the_nearest(command):
    with pytest.raises(DataError, match=r"unknown dataset 'cifar'.*'cifar10'"):
        CliRunner().invoke(app, [command, "cifar"], catch_exceptions=False)


def test_load_by_name_agrees_with_the_source(known, zipped, site, tmp_path):
    site.files = zipped
    seen = []
    dataset = load("tiny", tmp_path, progress=lambda *step: seen.append(step))
    assert dataset.name == "tiny"
    assert len(seen) == 4
    with pytest.raises(DataError, match="unknown dataset"):
        load("clothing")


@pytest.mark.parametrize("name", list(DATASETS))
def test_a_source_is_known_by_its_own_name(name):
    assert data.source(name).name == name
    assert data.source(name).summary


def test_listing_the_names_imports_no_numerical_library():
    code = "import sys, fedakd.data; print([m for m in ('numpy', 'sklearn', 'torch') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("command", ["list", "get", "check"])
def test_help_says_more_than_the_name(command):
    result = run(command, "--help")
    assert result.exit_code == 0
    assert "--data-dir" in result.stdout
