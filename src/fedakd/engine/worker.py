"""The child's side of the processes engine: sites in one process, commands in, replies out.

Trees travel through files in a spool folder and only their places through the pipe, so nobody ever waits for
somebody to read, and the parent holds one tree at a time.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import torch

from fedakd import wire
from fedakd.engine.base import Seen, Site, Spec, build, read_kept
from fedakd.trees import Tree


class Ref(NamedTuple):
    """Where a tree lies."""

    path: str
    offset: int
    length: int

    def read(self) -> Tree:
        with open(self.path, "rb") as file:
            return wire.loads(os.pread(file.fileno(), self.length, self.offset))


def serve(connection: Connection, spool: str, number: int) -> None:
    """Answers commands until told to stop, or until the parent is gone."""
    prepare(Path(spool) / f"worker-{number}.log")
    worker = Worker(Path(spool), number)
    try:
        while (command := connection.recv())[1] != "stop":
            for reply in worker.answers(*command[1:]):
                connection.send((command[0], *reply))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass


class Worker:
    def __init__(self, spool: Path, number: int) -> None:
        self.spool, self.number = spool, number
        self.sites: dict[int, Site] = {}

    def answers(self, command: str, *arguments: Any) -> Iterator[tuple[Any, ...]]:
        """One reply a client where there are clients, then the end; an error is a reply too."""
        try:
            yield from getattr(self, command)(*arguments)
            yield ("end",)
        except Exception as error:  # whatever it is, the parent must hear of it and the worker serve on
            traceback.print_exc()
            yield ("error", str(error))

    def build(self, path: str) -> Iterator[tuple[Any, ...]]:
        spec: Spec = pickle.loads(Path(path).read_bytes())
        self.sites = build(spec)
        yield from ()

    def start(self, params: Ref, kept: str) -> Iterator[tuple[Any, ...]]:
        tree = params.read()
        for site in self.sites.values():
            site.start(tree)
        self._save(kept)
        yield from ()

    def load(self, folder: str, kept: str) -> Iterator[tuple[Any, ...]]:
        for client, tree in read_kept(Path(folder)).items():
            if client in self.sites:
                self.sites[client].kept = tree
        self._save(kept)
        yield from ()

    def restore(self, kept: str) -> Iterator[tuple[Any, ...]]:
        for client, tree in wire.load(Path(kept)).items():
            self.sites[int(client)].kept = tree
        yield from ()

    def train(self, round: int, messages: dict[int, Ref], kept: str) -> Iterator[tuple[Any, ...]]:
        read = Reader()
        with (self.spool / f"updates-{self.number}.bin").open("wb") as file:
            for client, ref in messages.items():
                update, report = self.sites[client].train(round, read(ref))
                place = None if update is None else append(file, update)
                yield "client", client, (place, report)
        self._save(kept)

    def evaluate(self, round: int, messages: dict[int, Ref]) -> Iterator[tuple[Any, ...]]:
        read, seen = Reader(), Seen()
        for client, ref in messages.items():
            yield "client", client, self.sites[client].evaluate(round, read(ref), seen)

    def _save(self, path: str) -> None:
        kept = {str(client): site.kept for client, site in self.sites.items()}
        wire.save(Path(path), kept, durable=False)


class Reader:
    """Reads a message once, however many clients in a row get it."""

    def __init__(self) -> None:
        self.ref: Ref | None = None
        self.tree: Tree = {}

    def __call__(self, ref: Ref) -> Tree:
        if ref != self.ref:
            self.ref, self.tree = ref, ref.read()
        return self.tree


def append(file: Any, tree: Tree) -> Ref:
    data = wire.dumps(tree)
    offset = file.tell()
    file.write(data)
    file.flush()
    return Ref(file.name, offset, len(data))


def prepare(log: Path) -> None:
    """One thread, errors into a file the parent can quote, and Ctrl-C left to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, sys.stderr.fileno() if sys.stderr else 2)
    faulthandler.enable()
    torch.set_num_threads(1)
    keep_freed_memory()


def keep_freed_memory() -> None:
    """glibc returns large blocks to the kernel after every batch, and page faults cost a tenth of a step."""
    mmap_threshold, trim_threshold = -3, -1
    try:
        libc = ctypes.CDLL(None)
        libc.mallopt(mmap_threshold, 32 * 2**20)  # the most glibc accepts
        libc.mallopt(trim_threshold, 2**31 - 1)
    except (OSError, AttributeError):  # another C library: slower, not wrong
        return
