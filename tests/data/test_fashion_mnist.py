from __future__ import annotations

import dataclasses
import gzip
import hashlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from fedakd.data.fashion_mnist import FashionMnist
from fedakd.data.idx import array
from fedakd.errors import DataError


def put(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)


def expecting(tiny, name, data):
    """The same source, with the sha256 of other content for one file."""
    files = (
        dataclasses.replace(f, sha256=hashlib.sha256(data).hexdigest()) if f.name == name else f
        for f in tiny.files
    )
    return dataclasses.replace(tiny, files=tuple(files))


def test_training_rows_come_first_and_images_get_a_channel(tiny, zipped, tmp_path):
    put(tmp_path, zipped)
    data = tiny.load(tmp_path, download=False)
    assert data.x.shape == (10, 1, 2, 3)
    assert (data.x.dtype, data.y.dtype) == (np.uint8, np.int64)
    assert data.y.tolist() == [9, 8, 7, 6, 5, 4, 9, 8, 7, 6]
    assert data.x[1, 0].tolist() == [[6, 7, 8], [9, 10, 11]]
    assert data.x[6, 0, 0].tolist() == [0, 1, 2]
    assert (data.official_train, data.classes, data.shape) == (6, 10, (1, 2, 3))
    assert str(tmp_path) in data.origin
    assert "official" in data.origin


@pytest.mark.parametrize("inside", ["tiny", "."])
def test_files_may_lie_in_a_folder_of_the_name_or_directly(tiny, zipped, tmp_path, inside):
    put(tmp_path / inside, zipped)
    assert tiny.where(tmp_path) == str(tmp_path / inside)
    assert len(tiny.load(tmp_path, download=False)) == 10


def test_the_variable_is_searched_too(tiny, zipped, tmp_path, monkeypatch):
    put(tmp_path / "env", zipped)
    monkeypatch.setenv("FEDAKD_DATA", str(tmp_path / "env"))
    assert tiny.where() == tiny.where(tmp_path / "empty") == str(tmp_path / "env")


def test_the_gzip_header_does_not_matter_nor_whether_there_is_one(tiny, clothes, zipped, tmp_path):
    with gzip.GzipFile(tmp_path / "train-images-idx3-ubyte.gz", "wb", mtime=1) as file:
        file.write(clothes["train-images-idx3-ubyte"])
    plain = "t10k-labels-idx1-ubyte"
    rest = {n: d for n, d in zipped.items() if n not in ("train-images-idx3-ubyte.gz", f"{plain}.gz")}
    put(tmp_path, rest | {plain: clothes[plain]})
    assert len(tiny.load(tmp_path, download=False)) == 10


def test_three_of_four_files_are_not_the_dataset(tiny, zipped, tmp_path):
    zipped.pop("t10k-labels-idx1-ubyte.gz")
    put(tmp_path, zipped)
    assert tiny.where(tmp_path) is None
    with pytest.raises(DataError, match="tiny is not on this machine"):
        tiny.load(tmp_path, download=False)


def test_a_broken_off_file_is_named(tiny, zipped, tmp_path):
    name = "train-images-idx3-ubyte.gz"
    put(tmp_path, zipped | {name: zipped[name][:-20]})
    with pytest.raises(DataError, match=rf"{name}: must be a whole gzip file.*fedakd data get"):
        tiny.load(tmp_path)


def test_damaged_bytes_inside_gzip_are_named(tiny, zipped, tmp_path):
    name = "train-images-idx3-ubyte.gz"
    put(tmp_path, zipped | {name: zipped[name][:12] + b"\xff\xff\xff\xff" + zipped[name][16:]})
    with pytest.raises(DataError, match=f"{name}: must be a whole gzip file"):
        tiny.load(tmp_path)


def test_other_content_is_refused_with_both_checksums(tiny, clothes, zipped, tmp_path):
    name = "t10k-images-idx3-ubyte"
    other = clothes[name][:-1] + b"\xff"
    put(tmp_path, zipped | {f"{name}.gz": gzip.compress(other)})
    wanted = next(file.sha256 for file in tiny.files if file.name == name)
    came = hashlib.sha256(other).hexdigest()
    with pytest.raises(DataError, match=rf"{name}.gz: .*must be {wanted}, got {came}"):
        tiny.load(tmp_path)


def test_a_label_out_of_range_is_named_with_its_row(tiny, clothes, zipped, tmp_path):
    name = "train-labels-idx1-ubyte"
    other = clothes[name][:-2] + b"\x0a" + clothes[name][-1:]
    put(tmp_path, zipped | {f"{name}.gz": gzip.compress(other)})
    with pytest.raises(DataError, match=rf"{name}.gz: labels must be 0 to 9, got 10 in row 4"):
        expecting(tiny, name, other).load(tmp_path)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\0\0\x0d\x01\0\0\0\x02\x07\x09", "IDX header"),
        (b"\0\0\x08\x01\0\0\0\x03\x07\x09\x01", "IDX header"),
        (b"\0\0\x08\x01\0\0\0\x02\x07", "must be 10 bytes, got 9"),
        (b"\0\0\x08\x01\0\0\0\x02\x07\x09\x01", "must be 10 bytes, got 11"),
        (b"", "IDX header"),
    ],
    ids=["floats", "three rows", "short", "long", "empty"],
)
def test_idx_bytes_of_another_form_are_refused(data, said):
    with pytest.raises(DataError, match=said):
        array(data, (2,), "labels")


def test_only_what_is_missing_is_downloaded_into_the_folder_of_the_name(
    tiny, clothes, zipped, site, tmp_path
):
    site.files = zipped
    here = {"train-labels-idx1-ubyte.gz": zipped["train-labels-idx1-ubyte.gz"]}
    here["t10k-labels-idx1-ubyte"] = clothes["t10k-labels-idx1-ubyte"]
    put(tmp_path / "tiny", here)
    assert len(tiny.load(tmp_path)) == 10
    fetched = ["train-images-idx3-ubyte.gz", "t10k-images-idx3-ubyte.gz"]
    assert [path for path, _ in site.asked] == fetched
    assert sorted(path.name for path in (tmp_path / "tiny").iterdir()) == sorted([*here, *fetched])


def test_the_second_mirror_serves_when_the_first_has_nothing(tiny, zipped, site, tmp_path):
    site.files = {f"mirror/{name}": data for name, data in zipped.items()}
    twice = dataclasses.replace(tiny, mirrors=(site.url, f"{site.url}mirror/"))
    assert len(twice.load(tmp_path)) == 10


def test_who_wants_it_at_the_same_time_waits_and_downloads_nothing(tiny, zipped, site, tmp_path):
    site.files |= zipped
    site.pause = 0.1
    with ThreadPoolExecutor(4) as pool:
        assert [len(data.y) for data in pool.map(lambda _: tiny.load(tmp_path), range(4))] == [10] * 4
    assert sorted(path for path, _ in site.asked) == sorted(zipped)


def test_a_wrong_download_is_not_kept(tiny, zipped, site, tmp_path):
    site.files = zipped | {"t10k-images-idx3-ubyte.gz": gzip.compress(b"other")}
    with pytest.raises(DataError, match=r"t10k-images-idx3-ubyte.gz could not be downloaded"):
        tiny.load(tmp_path)
    assert not list((tmp_path / "tiny").glob("t10k-images*"))


def test_offline_and_absent_tells_what_helps(tiny, site, tmp_path):
    site.refuse = [503] * 9
    with pytest.raises(DataError) as caught:
        tiny.load(tmp_path)
    for hint in ("503", str(tmp_path / "tiny"), "apt-get install dataset-tiny", "train-images-idx3-ubyte.gz"):
        assert hint in str(caught.value)


def test_without_download_no_server_is_asked(tiny, site, tmp_path):
    with pytest.raises(DataError):
        tiny.load(tmp_path, download=False)
    assert site.asked == []


def test_check_gives_one_verdict_for_each_file(tiny, zipped, tmp_path):
    put(tmp_path, zipped | {"t10k-labels-idx1-ubyte.gz": b"junk"})
    verdicts = tiny.check(tmp_path)
    assert [verdict.ok for verdict in verdicts] == [True, True, True, False]
    assert verdicts[0].said.startswith("6 images")
    assert "sha256" in verdicts[3].said
    assert verdicts[3].file == str(tmp_path / "t10k-labels-idx1-ubyte.gz")


@pytest.mark.slow
def test_the_real_files_are_the_official_ones():
    source = FashionMnist()
    if source.where() is None:
        pytest.skip("FashionMNIST is not on this machine")
    data = source.load(download=False)
    assert data.x.shape == (70000, 1, 28, 28)
    assert data.official_train == 60000
    assert np.bincount(data.y[:60000]).tolist() == [6000] * 10
    assert np.bincount(data.y[60000:]).tolist() == [1000] * 10
    assert data.y[:5].tolist() == [9, 0, 0, 3, 0]
