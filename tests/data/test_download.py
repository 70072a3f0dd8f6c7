from __future__ import annotations

import hashlib
import socket
import time
from pathlib import Path

import pytest

from fedakd.data.download import BLOCK, fetch
from fedakd.data.source import Patience
from fedakd.errors import DataError

BODY = bytes(range(256)) * 4000
QUICK = Patience(tries=3, timeout=5.0, pause=0.0)


def verify(path: Path) -> None:
    if path.read_bytes() != BODY:
        raise DataError(f"{path}: other bytes")


def get(site, target, urls=None, progress=None, patience=QUICK):
    return fetch(urls or [f"{site.url}file"], target, verify, progress, patience)


@pytest.fixture
def target(tmp_path):
    return tmp_path / "file"


def left(target):
    return sorted(path.name for path in target.parent.iterdir())


def test_a_download_leaves_the_file_and_nothing_else(site, target):
    site.files["file"] = BODY
    assert get(site, target) == target
    assert target.read_bytes() == BODY
    assert left(target) == ["file"]
    assert site.asked == [("file", None)]


def test_a_file_that_is_there_and_right_is_not_asked_for(site, target):
    target.write_bytes(BODY)
    assert get(site, target) == target
    assert site.asked == []


def test_a_file_that_is_there_and_wrong_is_left_alone_and_refused(site, target):
    target.write_bytes(b"mine")
    with pytest.raises(DataError, match="other bytes"):
        get(site, target)
    assert target.read_bytes() == b"mine"


def test_a_cut_connection_is_continued_where_it_broke(site, target):
    site.files["file"], site.cuts = BODY, [1000, 5000]
    get(site, target)
    assert target.read_bytes() == BODY
    assert [asked for _, asked in site.asked] == [None, "bytes=1000-", "bytes=6000-"]


def test_a_part_of_an_earlier_run_is_continued(site, target):
    site.files["file"] = BODY
    (target.parent / "file.part").write_bytes(BODY[:777])
    get(site, target)
    assert site.asked == [("file", "bytes=777-")]
    assert target.read_bytes() == BODY


def test_when_every_try_is_cut_the_part_is_kept_for_the_next_run(site, target):
    site.files["file"], site.cuts = BODY, [10, 10, 10]
    with pytest.raises(DataError, match=f"cut after 30 of {len(BODY)} bytes"):
        get(site, target)
    assert left(target) == ["file.part"]
    assert (target.parent / "file.part").read_bytes() == BODY[:30]


def test_a_server_that_ignores_ranges_makes_it_start_again(site, target):
    site.files["file"], site.knows_ranges = BODY, False
    (target.parent / "file.part").write_bytes(BODY[:777])
    get(site, target)
    assert target.read_bytes() == BODY
    assert len(site.asked) == 1  # what it sent whole is taken as whole


def test_a_wrong_part_is_thrown_away_and_the_file_fetched_whole(site, target):
    site.files["file"] = BODY
    (target.parent / "file.part").write_bytes(b"x" * 777)
    get(site, target)
    assert target.read_bytes() == BODY
    assert [asked for _, asked in site.asked] == ["bytes=777-", None]


@pytest.mark.parametrize("extra", [b"", b"too long"])
def test_a_part_as_long_as_the_file_or_longer_starts_again(site, target, extra):
    site.files["file"] = BODY
    (target.parent / "file.part").write_bytes(BODY + extra)
    get(site, target)
    assert target.read_bytes() == BODY


def test_wrong_bytes_never_get_the_right_name(site, target):
    site.files["file"] = BODY[:-1] + b"x"
    with pytest.raises(DataError, match=r"file could not be downloaded.*not the published ones"):
        get(site, target)
    assert left(target) == []
    assert len(site.asked) == 3


def test_the_next_address_is_asked_when_one_does_not_have_the_file(site, target):
    site.files["second"] = BODY
    get(site, target, [f"{site.url}first", f"{site.url}second"])
    # 404 is an answer: asking the first again would not change it.
    assert [path for path, _ in site.asked] == ["first", "second"]


def test_a_busy_server_is_asked_again(site, target):
    site.files["file"], site.refuse = BODY, [503, 429]
    get(site, target)
    assert len(site.asked) == 3


def test_tries_are_bounded_and_every_address_is_named(site, target):
    site.refuse = [503] * 100
    with pytest.raises(DataError, match=r"/a: HTTP Error 503.*; .*/b: HTTP Error 503"):
        get(site, target, [f"{site.url}a", f"{site.url}b"])
    assert len(site.asked) == 6


def test_no_server_at_all_is_said(site, target):
    with socket.socket() as taken:  # bound but not listening: connections are refused
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(DataError, match="refused"):
            get(site, target, [f"http://127.0.0.1:{taken.getsockname()[1]}/file"])


def test_a_silent_server_is_given_up_after_the_timeout(site, target):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        began = time.monotonic()
        with pytest.raises(DataError, match="timed out"):
            get(site, target, [f"http://127.0.0.1:{silent.getsockname()[1]}/f"], None, Patience(2, 0.05, 0.0))
        assert time.monotonic() - began < 4


def test_progress_rises_from_what_is_there_to_the_whole(site, target):
    site.files["file"] = BODY
    (target.parent / "file.part").write_bytes(BODY[:777])
    seen = []
    get(site, target, progress=lambda *step: seen.append(step))
    done = [step[1] for step in seen]
    assert {(name, total) for name, _, total in seen} == {("file", len(BODY))}
    assert done == sorted(done)
    assert done[0] == 777 + BLOCK
    assert done[-1] == len(BODY)


def test_a_server_that_tells_no_length_works_too(site, target):
    site.files["file"], site.tells_length = BODY, False
    seen = []
    get(site, target, progress=lambda *step: seen.append(step))
    assert hashlib.md5(target.read_bytes()).digest() == hashlib.md5(BODY).digest()
    assert {total for _, _, total in seen} == {None}
