"""A small web server with the faults real ones have, and datasets small enough to build by hand."""

from __future__ import annotations

import gzip
import hashlib
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from fedakd.data.fashion_mnist import FashionMnist, IdxFile
from fedakd.data.source import Patience

SHAPES = {
    "train-images-idx3-ubyte": (6, 2, 3),
    "train-labels-idx1-ubyte": (6,),
    "t10k-images-idx3-ubyte": (4, 2, 3),
    "t10k-labels-idx1-ubyte": (4,),
}


@dataclass
class Site:
    """What the server sends and how it misbehaves; `asked` lists the path and Range of each request."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    knows_ranges: bool = True
    cuts: list[int] = field(default_factory=list)  # one request each: bytes sent before the line is cut
    refuse: list[int] = field(default_factory=list)  # one request each: a status instead of the file
    tells_length: bool = True
    pause: float = 0.0  # seconds before each answer
    asked: list[tuple[str, str | None]] = field(default_factory=list)


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(site))
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    site.url = f"http://127.0.0.1:{server.server_port}/"
    yield site
    server.shutdown()
    thread.join()
    server.server_close()


def _handler(site: Site) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            """Tests read `asked` instead."""

        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            site.asked.append((self.path[1:], wanted))
            time.sleep(site.pause)
            data = site.files.get(self.path[1:])
            status = site.refuse.pop(0) if site.refuse else 200 if data is not None else 404
            if data is None or status != 200:
                self._head(status, 0)
            elif wanted and site.knows_ranges:
                start = int(wanted.removeprefix("bytes=").removesuffix("-"))
                self._head(206 if start < len(data) else 416, len(data) - start)
                self._send(data[start:])
            else:
                self._head(200, len(data))
                self._send(data)

        def _head(self, status: int, length: int) -> None:
            self.send_response(status)
            if site.tells_length:
                self.send_header("Content-Length", str(max(length, 0)))
            self.end_headers()

        def _send(self, data: bytes) -> None:
            self.wfile.write(data[: site.cuts.pop(0)] if site.cuts else data)

    return Handler


@pytest.fixture(autouse=True)
def nothing_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test reads or fills the cache and the folders of the person who runs it."""
    monkeypatch.delenv("FEDAKD_DATA", raising=False)
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: str(tmp_path / "cache" / name))


@pytest.fixture
def idx_bytes() -> Callable[[np.ndarray], bytes]:
    return lambda a: struct.pack(f">HBB{a.ndim}I", 0, 8, a.ndim, *a.shape) + a.tobytes()


@pytest.fixture
def clothes(idx_bytes: Callable[[np.ndarray], bytes]) -> dict[str, bytes]:
    """The plain content of four tiny IDX files; pixels count upwards, labels from 9 downwards."""
    arrays = {name: np.arange(np.prod(shape), dtype=np.uint8) for name, shape in SHAPES.items()}
    return {
        name: idx_bytes((9 - a if "labels" in name else a).reshape(SHAPES[name]))
        for name, a in arrays.items()
    }


@pytest.fixture
def zipped(clothes: dict[str, bytes]) -> dict[str, bytes]:
    return {f"{name}.gz": gzip.compress(data) for name, data in clothes.items()}


@pytest.fixture
def tiny(clothes: dict[str, bytes], site: Site) -> FashionMnist:
    """A FashionMNIST of ten images that is downloaded from the test's own server."""
    files = tuple(IdxFile(n, SHAPES[n], hashlib.sha256(data).hexdigest()) for n, data in clothes.items())
    return FashionMnist(name="tiny", files=files, mirrors=(site.url,), patience=Patience(3, 5.0, 0.0))
