"""Unpacking of a verified archive, with a record of what came out of it."""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Collection
from pathlib import Path, PurePosixPath

from fedakd.errors import DataError

MANIFEST = "checksums.json"


def unpack(archive: Path, members: Collection[str], folder: Path) -> None:
    """Write these members, and no others, straight into `folder`, and record the sha256 of each.

    Only regular files are copied, to names chosen here, so no link or path in an archive can lead outside.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "r:gz") as tar:  # in the archive's order: gzip cannot go back cheaply
        sums = {m.name: _copy(tar, m, folder) for m in tar if m.isreg() and m.name in members}
    missing = [name for name in members if name not in sums]
    if missing:
        raise DataError(f"{archive}: must contain {', '.join(members)}, lacks {', '.join(missing)}")
    record = {PurePosixPath(name).name: sums[name] for name in members}
    _write(folder / MANIFEST, json.dumps(record, indent=2).encode())


def recorded(folder: Path) -> dict[str, str] | None:
    """The sha256 of each file as recorded when it was unpacked; None if the files came otherwise."""
    path = folder / MANIFEST
    if not path.is_file():
        return None
    try:
        sums = json.loads(path.read_text())
    except ValueError as error:
        raise DataError(f"{path}: must be JSON, {error}; delete the folder and fetch it again") from error
    if not isinstance(sums, dict):
        raise DataError(f"{path}: must give a sha256 by file name, got {sums!r}; delete it and fetch again")
    return {str(name): str(value) for name, value in sums.items()}


def _copy(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> str:
    source = tar.extractfile(member)
    data = source.read() if source else b""
    _write(folder / PurePosixPath(member.name).name, data)
    return hashlib.sha256(data).hexdigest()


def _write(path: Path, data: bytes) -> None:
    part = path.with_name(path.name + ".part")
    part.write_bytes(data)
    part.replace(path)
