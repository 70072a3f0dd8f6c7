"""Downloads that survive a cut line and never leave a wrong file under the right name."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import cast
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from fedakd.data.source import Patience, Progress
from fedakd.errors import DataError

FAILURES = (OSError, HTTPException, DataError)  # urllib's errors are OSErrors
BLOCK = 1 << 18  # bytes between two calls of the progress function


def fetch(
    urls: Sequence[str],
    target: Path,
    verify: Callable[[Path], object],
    progress: Progress | None = None,
    patience: Patience | None = None,
) -> Path:
    """Make `target` from the first address whose bytes pass `verify`, which raises DataError on wrong ones.

    Bytes gather in a `.part` file beside the target, which a later try or a later run continues.
    """
    if target.exists():
        verify(target)
        return target
    failures = []
    for url in urls:
        try:
            return _persist(url, target, verify, progress or _silent, patience or Patience())
        except FAILURES as error:
            failures.append(f"{url}: {error or type(error).__name__}")
    raise DataError(f"{target.name} could not be downloaded: {'; '.join(failures)}")


def _persist(
    url: str, target: Path, verify: Callable[[Path], object], progress: Progress, patience: Patience
) -> Path:
    """One address, tried until it works, says no, or patience ends with the last failure."""
    for attempt in range(1, patience.tries):
        try:
            return _once(url, target, verify, progress, patience.timeout)
        except FAILURES as error:
            if _hopeless(error):
                raise
        time.sleep(attempt * patience.pause)
    return _once(url, target, verify, progress, patience.timeout)


def _once(
    url: str, target: Path, verify: Callable[[Path], object], progress: Progress, timeout: float
) -> Path:
    part = target.with_name(target.name + ".part")
    with _open(url, part, timeout) as response:
        _receive(response, part, partial(progress, target.name))
    try:
        verify(part)
    except DataError as error:
        part.unlink()  # to continue wrong bytes would only give more of them
        raise DataError("the bytes that came are not the published ones") from error
    return part.replace(target)


def _open(url: str, part: Path, timeout: float) -> HTTPResponse:
    have = part.stat().st_size if part.exists() else 0
    wanted = {"Range": f"bytes={have}-"} if have else {}
    try:
        request = Request(url, headers={"User-Agent": "fedakd", **wanted})
        return cast(HTTPResponse, urlopen(request, timeout=timeout))
    except HTTPError as error:
        error.close()
        if error.code == 416:  # the part is already as long as the file, or longer
            part.unlink()
        raise


def _receive(response: HTTPResponse, part: Path, report: Callable[[int, int | None], object]) -> None:
    resumed = response.status == 206  # a server that knows no ranges answers 200 and sends everything
    done = part.stat().st_size if resumed else 0
    length = response.headers.get("Content-Length")
    total = done + int(length) if length else None
    with part.open("ab" if resumed else "wb") as file:
        while block := response.read(BLOCK):
            file.write(block)
            done += len(block)
            report(done, total)
    if total is not None and done < total:  # read() gives a cut line as a silent end
        raise ConnectionError(f"the connection was cut after {done} of {total} bytes")


def _hopeless(error: Exception) -> bool:
    """Whether asking the same address again is pointless: it answered, and the answer was no."""
    return isinstance(error, HTTPError) and 400 <= error.code < 500 and error.code not in (408, 416, 429)


def _silent(name: str, done: int, total: int | None) -> None:
    """Progress nobody asked to see."""
