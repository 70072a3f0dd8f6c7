"""Clients spread over worker processes of one thread each, pinned there; only messages travel."""

from __future__ import annotations

import pickle
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, cast

from fedakd import trees, wire
from fedakd.engine.base import ClientError, Judged, Progress, Rows, Spec, Trained
from fedakd.engine.worker import Ref, append, serve
from fedakd.errors import FedakdError
from fedakd.trees import Params, Tree


class WorkerDied(FedakdError):
    """A worker process ended by itself, and not for the first time."""


class Workers:
    """Processes that outlive one engine, so that a grid of runs pays for starting them once."""

    def __init__(self, count: int, spool: Path | None = None) -> None:
        self.spool = Path(tempfile.mkdtemp(prefix="fedakd-")) if spool is None else spool
        self.spool.mkdir(parents=True, exist_ok=True)
        self.ticket = 0  # of the last command; answers to earlier ones are stale
        self.processes: list[Any] = [None] * count
        self.pipes: list[Connection] = [None] * count  # type: ignore[list-item]
        for number in range(count):
            self.spawn(number)

    def __len__(self) -> int:
        return len(self.processes)

    def spawn(self, number: int) -> None:
        context = get_context("spawn")  # forking a process that has run torch's threads can deadlock
        self.pipes[number], theirs = context.Pipe()
        arguments = (theirs, str(self.spool), number)
        process = context.Process(target=serve, args=arguments, name=f"fedakd-worker-{number}", daemon=True)
        with unheard(signal.SIGINT):  # Ctrl-C is for the parent, also while a worker is still importing
            process.start()
        theirs.close()
        self.processes[number] = process

    def obituary(self, number: int) -> str:
        """How a worker that is gone ended, and the last lines it wrote."""
        process = self.processes[number]
        process.join(10)
        log = self.spool / f"worker-{number}.log"
        lines = log.read_text(errors="replace").strip().splitlines()[-5:] if log.exists() else []
        code = process.exitcode
        end = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        return f"{end}; its last lines: {' | '.join(lines) or 'none'}"

    def close(self) -> None:
        for process, pipe in zip(self.processes, self.pipes, strict=True):
            with suppress(OSError):
                pipe.send((0, "stop"))
            pipe.close()
            process.join(0.5)
            if process.is_alive():  # in the middle of a client: nobody waits for it any more
                process.kill()
                process.join()
        shutil.rmtree(self.spool, ignore_errors=True)


@contextmanager
def unheard(number: signal.Signals) -> Iterator[None]:
    """The signal ignored, by this process for a moment and by those it starts for good."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread may say so
        yield
        return
    before = signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        if before is not None:  # None: a handler that Python did not install and cannot put back
            signal.signal(number, before)


class Processes:
    def __init__(self, spec: Spec, workers: int | Workers, progress: Progress | None = None) -> None:
        self.owned = isinstance(workers, int)
        self.workers = Workers(min(workers, len(spec.clients))) if isinstance(workers, int) else workers
        self.progress = progress
        self.notices: list[str] = []
        self.parts = [replace(spec, clients=part) for part in balanced(spec.clients, len(self.workers))]
        self.place = {rows.id: w for w, part in enumerate(self.parts) for rows in part.clients}
        self.kept: dict[int, Path] = {}  # each worker's last complete state
        self.version = 0
        self.revived: set[int] = set()
        try:
            self._each("build", lambda worker: (self._blueprint(worker),))
        except BaseException:  # Ctrl-C included: nobody else knows of these workers yet
            self.close()
            raise

    def start(self, params: Params) -> None:
        ref = self._post({0: params})[0]
        self._changing("start", lambda _: (ref,))

    def train(self, round: int, messages: Mapping[int, Tree]) -> Trained:
        refs = self._post(messages)
        replies = self._changing("train", lambda w: (round, self._own(w, refs)), self._asked(refs))
        reports = {client: report for client, (_, report) in sorted(replies.items())}
        places = {client: ref for client, (ref, _) in sorted(replies.items()) if ref is not None}
        return Trained(Stored(places), reports)

    def evaluate(self, round: int, messages: Mapping[int, Tree]) -> dict[int, Judged]:
        refs = self._post(messages)
        replies = self._each("evaluate", lambda w: (round, self._own(w, refs)), self._asked(refs))
        return dict(sorted(replies.items()))

    def save(self, folder: Path) -> None:
        for worker, path in self.kept.items():
            wire.write(folder / f"clients-{worker}.safetensors", path.read_bytes())

    def load(self, folder: Path) -> None:
        self._changing("load", lambda _: (str(folder),))

    def close(self) -> None:
        if self.owned:
            self.workers.close()

    def _post(self, messages: Mapping[int, Tree]) -> dict[int, Ref]:
        """Each distinct message written once; messages that hold the same objects are the same message."""
        refs: dict[int, Ref] = {}
        known: dict[tuple[Any, ...], tuple[Ref, Tree]] = {}  # the tree is held so that its ids stay taken
        with (self.workers.spool / "messages.bin").open("wb") as file:
            for client in sorted(messages):
                message = messages[client]
                key = tuple(
                    (path, held if isinstance(held, float) else id(held))
                    for path, held in trees.leaves(message)
                )
                if key not in known:
                    if len(known) > 16:  # personal messages: remembering them would hold them all in memory
                        known.clear()
                    known[key] = append(file, message), message
                refs[client] = known[key][0]
        return refs

    def _own(self, worker: int, refs: dict[int, Ref]) -> dict[int, Ref]:
        return {client: ref for client, ref in refs.items() if self.place[client] == worker}

    def _asked(self, refs: dict[int, Ref]) -> list[int]:
        return sorted({self.place[client] for client in refs})

    def _changing(
        self, command: str, arguments: Callable[[int], tuple[Any, ...]], asked: list[int] | None = None
    ) -> dict[int, Any]:
        """A command after which workers keep something else: each writes it down before it says so."""
        self.version += 1
        new = {w: self.workers.spool / f"kept-{w}-{self.version}" for w in range(len(self.workers))}
        replies = self._each(command, lambda w: (*arguments(w), str(new[w])), asked)
        for worker in range(len(self.workers)) if asked is None else asked:
            if worker in self.kept:
                self.kept[worker].unlink(missing_ok=True)
            self.kept[worker] = new[worker]
        return replies

    def _each(
        self, command: str, arguments: Callable[[int], tuple[Any, ...]], asked: list[int] | None = None
    ) -> dict[int, Any]:
        """The command to every worker asked, and what they answer for their clients."""
        self.workers.ticket += 1
        busy = set(range(len(self.workers)) if asked is None else asked)
        for worker in busy:
            self._tell(worker, command, *arguments(worker))
        replies: dict[int, Any] = {}
        while busy:
            for worker, reply in self._ready(busy):
                if reply is None:
                    self._revive(worker)
                    self._tell(worker, command, *arguments(worker))
                elif reply[0] == "client":
                    replies[reply[1]] = reply[2]
                    if self.progress:
                        self.progress(command, reply[1])
                elif reply[0] == "error":
                    raise ClientError(reply[1])
                else:
                    busy.discard(worker)
        return replies

    def _ready(self, busy: set[int]) -> Iterator[tuple[int, tuple[Any, ...] | None]]:
        """Replies that have arrived; None from a worker that is gone."""
        pipes = {self.workers.pipes[worker]: worker for worker in busy}
        for pipe in cast(list[Connection], wait(list(pipes))):
            try:
                ticket, *reply = pipe.recv()
            except (EOFError, OSError):
                yield pipes[pipe], None
                continue
            if ticket == self.workers.ticket:  # others answer a command that ended in an error elsewhere
                yield pipes[pipe], tuple(reply)

    def _tell(self, worker: int, *command: Any) -> None:
        with suppress(OSError):  # it is gone: the wait for its answer will notice
            self.workers.pipes[worker].send((self.workers.ticket, *command))

    def _revive(self, worker: int) -> None:
        """A new process with the state of the last complete command; once for each worker."""
        clients = ", ".join(str(rows.id) for rows in self.parts[worker].clients)
        story = f"worker {worker} with clients {clients} died: {self.workers.obituary(worker)}"
        if worker in self.revived:
            raise WorkerDied(f"{story}. It had been restarted once already; the last checkpoint is intact")
        self.revived.add(worker)
        self.notices.append(f"{story}. It was restarted from its last complete state")
        self.workers.spawn(worker)
        self._await(worker, "build", self._blueprint(worker))
        if worker in self.kept:
            self._await(worker, "restore", str(self.kept[worker]))

    def _await(self, worker: int, *command: Any) -> None:
        self._tell(worker, *command)
        try:
            _, *reply = self.workers.pipes[worker].recv()
        except (EOFError, OSError):
            reply = ["error", f"worker {worker} died again: {self.workers.obituary(worker)}"]
        if reply[0] == "error":
            raise WorkerDied(reply[1])

    def _blueprint(self, worker: int) -> str:
        path = self.workers.spool / f"spec-{worker}.pickle"
        path.write_bytes(pickle.dumps(self.parts[worker]))
        return str(path)


class Stored(Mapping[int, Tree]):
    """Updates that lie in the spool and are read when they are needed, valid until the next training call."""

    def __init__(self, places: dict[int, Ref]) -> None:
        self.places = places

    def __getitem__(self, client: int) -> Tree:
        return self.places[client].read()

    def __iter__(self) -> Iterator[int]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)


def balanced(clients: tuple[Rows, ...], workers: int) -> list[tuple[Rows, ...]]:
    """Largest client first, each to the worker with the fewest rows so far."""
    parts: list[list[Rows]] = [[] for _ in range(workers)]
    loads = [0] * workers
    for rows in sorted(clients, key=lambda rows: -len(rows.train)):
        least = loads.index(min(loads))
        parts[least].append(rows)
        loads[least] += len(rows.train)
    return [tuple(sorted(part, key=lambda rows: rows.id)) for part in parts]
