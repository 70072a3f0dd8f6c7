from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import pickle
import tarfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from fedakd.data.cifar10 import BATCHES, BINARY, PYTHON, Cifar10
from fedakd.data.source import Patience
from fedakd.errors import DataError

ROWS, PIXELS = 4, 12  # images of 3 x 2 x 2


def pixels(batch):
    return np.arange(ROWS * PIXELS, dtype=np.uint8).reshape(ROWS, PIXELS) + np.uint8(batch)


def labels(batch):
    return [(row + batch) % 10 for row in range(ROWS)]


def record(batch):
    """The batch in the binary version: each row a label and its pixels."""
    return np.column_stack([np.array(labels(batch), np.uint8), pixels(batch)]).tobytes()


def python2(batch):
    """The batch as Python 2 and the numpy of 2009 pickled it, byte strings and all."""
    data = pixels(batch).tobytes()
    return (
        b"\x80\x02}(U\x0bbatch_labelU\x04someU\x06labels]("
        + b"".join(b"K" + bytes([label]) for label in labels(batch))
        + b"eU\x04datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        + bytes([40, 75, 1, 75, ROWS, 75, PIXELS])
        + b"\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        + b"\x89T"
        + len(data).to_bytes(4, "little")
        + data
        + b"tbu."
    )


def archive(members):
    """A tar.gz of these members; bytes are a file, text is a link to there."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            if isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
                tar.addfile(info)
            else:
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


BINARIES = {f"{name}.bin": record(i) for i, name in enumerate(BATCHES)}
PICKLED = {name: python2(i) for i, name in enumerate(BATCHES)}
MEMBERS = {f"{BINARY}/batches.meta.txt": b"cat\n"} | {f"{BINARY}/{n}": data for n, data in BINARIES.items()}


@pytest.fixture
def small(site):
    """A CIFAR10 of six batches of four images, to be downloaded from the test's own server."""
    return Cifar10(
        name="small",
        shape=(3, 2, 2),
        batch_rows=ROWS,
        urls=(f"{site.url}small.tar.gz",),
        archive_md5=hashlib.md5(archive(MEMBERS)).hexdigest(),
        pickles={name: hashlib.md5(data).hexdigest() for name, data in PICKLED.items()},
        patience=Patience(2, 5.0, 0.0),
    )


def serving(small, site, members):
    """The same source, whose archive has other members and is nevertheless the published one."""
    site.files["small.tar.gz"] = archive(members)
    return dataclasses.replace(small, archive_md5=hashlib.md5(site.files["small.tar.gz"]).hexdigest())


def put(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)


def is_right(data):
    x = np.concatenate([pixels(i) for i in range(6)]).reshape(24, 3, 2, 2)
    y = np.concatenate([labels(i) for i in range(6)])
    np.testing.assert_array_equal(data.x, x)
    np.testing.assert_array_equal(data.y, y)
    assert (data.x.dtype, data.y.dtype, data.official_train) == (np.uint8, np.int64, 20)


@pytest.mark.parametrize("inside", ["small/cifar-10-batches-bin", "cifar-10-batches-bin", "small", "."])
def test_binary_batches_are_found_and_read(small, tmp_path, inside):
    put(tmp_path / inside, BINARIES)
    is_right(small.load(tmp_path, download=False))
    assert small.where(tmp_path) == str(tmp_path / inside)


@pytest.mark.parametrize("inside", ["small/cifar-10-batches-py", "cifar-10-batches-py", "small", "."])
def test_python_batches_are_found_and_read(small, tmp_path, inside):
    put(tmp_path / inside, PICKLED)
    data = small.load(tmp_path, download=False)
    is_right(data)
    assert "published md5" in data.origin


def test_batches_that_can_be_checked_are_preferred(small, tmp_path):
    put(tmp_path / BINARY, BINARIES)
    put(tmp_path / PYTHON, PICKLED)
    assert small.where(tmp_path) == str(tmp_path / PYTHON)


def test_binary_batches_from_elsewhere_say_that_nothing_vouches_for_them(small, tmp_path):
    put(tmp_path / BINARY, BINARIES)
    assert "nothing to check" in small.load(tmp_path, download=False).origin


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"x"], ids=["short", "long"])
def test_a_binary_batch_of_another_length_is_refused(small, tmp_path, change):
    put(tmp_path, BINARIES | {"data_batch_3.bin": change(BINARIES["data_batch_3.bin"])})
    with pytest.raises(DataError, match=r"data_batch_3.bin: must be 52 bytes \(4 records\), got 5[13]"):
        small.load(tmp_path, download=False)


def test_a_label_out_of_range_is_refused(small, tmp_path):
    put(tmp_path, BINARIES | {"test_batch.bin": b"\x0a" + BINARIES["test_batch.bin"][1:]})
    with pytest.raises(DataError, match=r"test_batch.bin: labels must be 0 to 9, got 10 in row 0"):
        small.load(tmp_path, download=False)


def test_a_pickle_of_other_bytes_is_refused_before_it_is_opened(small, tmp_path):
    canary = tmp_path / "canary"
    put(tmp_path, PICKLED | {"test_batch": pickle.dumps(Touch(str(canary)))})
    with pytest.raises(DataError, match=r"test_batch: the md5 must be \w{32}, got \w{32}"):
        small.load(tmp_path, download=False)
    assert not canary.exists()


class Touch:
    """Makes a file when it is unpickled by something that runs what it is told."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def test_a_pickle_that_asks_for_more_than_arrays_is_refused_even_with_the_right_md5(small, tmp_path):
    trusting = replaced(small, tmp_path, Touch(str(tmp_path / "canary")))
    with pytest.raises(DataError, match=r"asks for _?io.open; refused"):
        trusting.load(tmp_path, download=False)
    assert not (tmp_path / "canary").exists()


def replaced(small, folder, batch):
    """The same source, whose test batch is published as this pickle of today's numpy."""
    data = pickle.dumps(batch, protocol=4)
    put(folder, PICKLED | {"test_batch": data})
    return dataclasses.replace(small, pickles=small.pickles | {"test_batch": hashlib.md5(data).hexdigest()})


def test_batches_pickled_by_a_new_numpy_are_read(small, tmp_path):
    new = replaced(small, tmp_path, {b"data": pixels(5), b"labels": labels(5)})
    is_right(new.load(tmp_path, download=False))


@pytest.mark.parametrize(
    "batch",
    [
        {b"data": pixels(5)[:3], b"labels": labels(5)},
        {b"data": pixels(5), b"labels": labels(5)[:3]},
        {b"data": pixels(5).astype(float), b"labels": labels(5)},
    ],
    ids=["images", "labels", "type"],
)
def test_a_pickled_batch_of_another_form_is_refused(small, tmp_path, batch):
    with pytest.raises(DataError, match=r"test_batch: must hold 4 rows of 12 bytes and as many labels, got"):
        replaced(small, tmp_path, batch).load(tmp_path, download=False)


def test_a_download_is_unpacked_recorded_and_cleaned_up(small, site, tmp_path):
    site.files["small.tar.gz"] = archive(MEMBERS)
    data = small.load(tmp_path)
    is_right(data)
    assert "recorded" in data.origin
    folder = tmp_path / "small" / BINARY
    assert sorted(p.name for p in folder.iterdir()) == sorted([*BINARIES, "checksums.json"])
    assert [p.name for p in (tmp_path / "small").iterdir()] == [BINARY]
    sums = json.loads((folder / "checksums.json").read_text())
    assert sums == {name: hashlib.sha256(content).hexdigest() for name, content in BINARIES.items()}


def test_who_wants_it_at_the_same_time_waits_and_downloads_nothing(small, site, tmp_path):
    site.files["small.tar.gz"] = archive(MEMBERS)
    site.pause = 0.2  # before an answer: all have found nothing by then
    with ThreadPoolExecutor(4) as pool:
        for data in pool.map(lambda _: small.load(tmp_path), range(4)):
            is_right(data)
    assert [path for path, _ in site.asked] == ["small.tar.gz"]


def test_batches_are_held_to_their_record(small, site, tmp_path):
    site.files["small.tar.gz"] = archive(MEMBERS)
    small.load(tmp_path)
    batch = tmp_path / "small" / BINARY / "data_batch_2.bin"
    batch.write_bytes(batch.read_bytes()[:-1] + b"\xff")
    with pytest.raises(DataError, match=r"data_batch_2.bin: the sha256 must be"):
        small.load(tmp_path)
    assert [verdict.ok for verdict in small.check(tmp_path)] == [True, False, True, True, True, True]


@pytest.mark.parametrize("record", ["{", "[]", "{}"])
def test_a_damaged_record_is_refused(small, tmp_path, record):
    put(tmp_path, BINARIES | {"checksums.json": record.encode()})
    with pytest.raises(DataError, match=r"checksums.json"):
        small.load(tmp_path, download=False)


def test_an_archive_with_another_md5_is_never_opened(small, site, tmp_path):
    site.files["small.tar.gz"] = archive(MEMBERS | {"extra": b"x"})
    with pytest.raises(DataError, match=r"(?s)small is not on this machine.*not the published ones"):
        small.load(tmp_path)
    assert list((tmp_path / "small").iterdir()) == []


def test_only_the_six_batches_leave_the_archive(small, site, tmp_path):
    hostile = {"../../escaped": b"x", str(tmp_path / "absolute"): b"x", f"{BINARY}/link": "/etc", **MEMBERS}
    is_right(serving(small, site, hostile).load(tmp_path / "data"))
    names = {p.name for p in tmp_path.rglob("*") if not p.is_dir()}
    assert names == {*BINARIES, "checksums.json"}


@pytest.mark.parametrize("instead", ["../../outside", None], ids=["link", "absent"])
def test_an_archive_without_a_batch_as_a_regular_file_is_refused(small, site, tmp_path, instead):
    members = {n: d for n, d in MEMBERS.items() if "test_batch" not in n}
    if instead:
        members[f"{BINARY}/test_batch.bin"] = instead
    with pytest.raises(DataError, match=r"lacks cifar-10-batches-bin/test_batch.bin"):
        serving(small, site, members).load(tmp_path)


def test_absence_without_download_asks_no_server(small, site, tmp_path):
    with pytest.raises(DataError, match="small is not on this machine"):
        small.load(tmp_path, download=False)
    with pytest.raises(DataError, match="small is not on this machine"):
        small.check(tmp_path)
    assert site.asked == []
    assert small.where(tmp_path) is None


def test_the_published_sizes():
    source = Cifar10()
    assert (source.rows, source.shape, source.classes) == (60000, (3, 32, 32), 10)
    assert set(source.pickles) == set(BATCHES)
