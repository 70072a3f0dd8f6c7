"""One method and seed on disk: its rounds so far, and checkpoints to go on from.

cell.json         every field of the method and the run that determines its numbers
rounds.jsonl      one line a round: scores, contributions, bytes, failures
timings.jsonl     seconds of each round, apart because they never repeat
checkpoints/      round-00007/: server, clients, and a manifest with their checksums
outcomes.safetensors   of the last judged round: which test rows every client's models get right
done.json         written when the last round is there: what it was made for, and the checksum of its rounds
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from fedakd import wire
from fedakd.engine.base import Engine
from fedakd.errors import PlanError
from fedakd.plan import fingerprint
from fedakd.rounds import Outcomes, Round, Start
from fedakd.trees import Tree

OUTCOMES = "outcomes.safetensors"
DATA = "data"  # the one field that is known only when rows have been drawn
ROUNDS = "rounds"  # the one field that says how far, not what
KEPT = 2  # checkpoints of a cell that is not done


@dataclass(frozen=True)
class CellFolder:
    path: Path
    fields: dict[str, Any]  # everything that determines its numbers, the rows drawn included
    kept: int = KEPT  # checkpoints when it is done

    @staticmethod
    def at(path: Path, kept: int = KEPT) -> CellFolder | None:
        """The cell that was begun in this folder, if there is one."""
        try:
            return CellFolder(path, dict(json.loads((path / "cell.json").read_text())), kept)
        except (OSError, ValueError, TypeError):
            return None

    @property
    def identity(self) -> str:
        """Of the fields; results of another identity are not this cell's."""
        return fingerprint(self.fields)

    @property
    def state_identity(self) -> str:
        """Of the fields that determine the state after a round; a checkpoint of another one is refused.

        How many rounds follow is not among them, so that a run can be given more.
        """
        return fingerprint({key: value for key, value in self.fields.items() if key != ROUNDS})

    @property
    def name(self) -> str:
        """Of what was asked for, without the rows drawn: known before they are."""
        return fingerprint({key: value for key, value in self.fields.items() if key != DATA})

    def describe(self) -> None:
        (self.path / "checkpoints").mkdir(parents=True, exist_ok=True)
        write_json(self.path / "cell.json", self.fields)

    def extend(self, rounds: int) -> None:
        """Gives the cell more rounds: it is no longer done, and its checkpoints stay valid."""
        if self.fields.get(ROUNDS) != rounds:
            write_json(self.path / "cell.json", {**self.fields, ROUNDS: rounds})

    def append(self, record: Round) -> None:
        """The round's lines, on disk before this returns."""
        if record.outcomes:
            wire.save(self.path / OUTCOMES, packed(record.outcomes))
        fields = asdict(replace(record, outcomes={}))
        del fields["outcomes"]
        fields["scores"] = {measure: _nulled(own) for measure, own in record.scores.items()}
        _append(self.path / "timings.jsonl", {"round": record.number, "seconds": fields.pop("seconds")})
        _append(self.path / "rounds.jsonl", fields)

    def checkpoint(self, number: int, state: Tree, engine: Engine) -> None:
        """A folder that is there whole or not at all; all but the last two are removed."""
        folder = self.path / "checkpoints" / f"round-{number:05d}"
        partial = folder.with_suffix(".tmp")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        wire.save(partial / "server.safetensors", state)
        engine.save(partial)
        files = {path.name: digest(path)._asdict() for path in sorted(partial.iterdir())}
        manifest = {"round": number, "identity": self.state_identity, "files": files}
        write_json(partial / "manifest.json", manifest | {"rounds": self._told_rounds(number)})
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
        self.prune()

    def prune(self, most: int = KEPT) -> None:
        """Removes all but the last checkpoints, and what a process that was killed left half done."""
        for old in [*self.checkpoints()[most:], *(self.path / "checkpoints").glob("*.tmp")]:
            shutil.rmtree(old, ignore_errors=True)

    def checkpoints(self) -> list[Path]:
        """Newest first."""
        return sorted((self.path / "checkpoints").glob("round-?????"), reverse=True)

    def latest(self, engine: Engine) -> tuple[Start | None, list[str]]:
        """The last good checkpoint, loaded, and why newer ones were refused."""
        refused: list[str] = []
        for folder in self.checkpoints():
            try:
                start = self._read(folder)
            except (PlanError, wire.WireError) as error:
                refused.append(f"checkpoint {folder.relative_to(self.path.parent)} refused: {error}")
            else:
                engine.load(folder)  # an engine that fails says nothing against the checkpoint
                return start, refused
        return None, refused

    def _read(self, folder: Path) -> Start:
        number, told = self._verified(folder)
        rounds = self.rounds()[:number]
        if len(rounds) < number:
            raise PlanError(f"rounds.jsonl has only {len(rounds)} of its {number} rounds")
        if self._told_rounds(number) != told:
            raise PlanError("the lines of rounds.jsonl are not those written before it")
        return Start(wire.load(folder / "server.safetensors"), rounds)

    def _told_rounds(self, number: int) -> str:
        """A checksum of the first lines of rounds.jsonl."""
        lines = (self.path / "rounds.jsonl").read_bytes().splitlines(keepends=True)
        return hashlib.sha256(b"".join(lines[:number])).hexdigest()

    def _verified(self, folder: Path) -> tuple[int, str]:
        """The round of an intact checkpoint of this very cell, and the checksum of the rounds before it."""
        try:
            manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
            number, told, identity = int(manifest["round"]), str(manifest["rounds"]), manifest["identity"]
            files = {str(name): Digest(**own) for name, own in manifest["files"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise PlanError(f"manifest.json cannot be read ({error})") from error
        if identity != self.state_identity:
            raise PlanError(f"it was made for plan {identity}, this is plan {self.state_identity}")
        if number > (last := self.fields.get(ROUNDS, number)):
            raise PlanError(f"it is of round {number}, the plan ends with round {last}")
        for name, expected in files.items():
            if not (folder / name).exists():
                raise PlanError(f"{name} is missing")
            if (found := digest(folder / name)) != expected:
                raise PlanError(f"{name} is damaged: expected {expected}, found {found}")
        return number, told

    def rounds(self) -> list[Round]:
        """The rounds on disk, up to the first gap or broken line; seconds that were lost are nan."""
        seconds = {
            line.get("round"): line.get("seconds", math.nan) for line in _lines(self.path / "timings.jsonl")
        }
        found: list[Round] = []
        for line in _lines(self.path / "rounds.jsonl"):
            try:
                record = _round(line, seconds.get(line["number"], math.nan))
            except (KeyError, TypeError, ValueError, AttributeError):
                break
            if record.number != len(found) + 1:
                break
            found.append(record)
        return found

    def outcomes(self) -> Outcomes:
        """Which test rows every client's models got right when they were judged last."""
        path = self.path / OUTCOMES
        return unpacked(wire.load(path)) if path.exists() else {}

    def rewind(self, number: int) -> None:
        """Forget everything after this round."""
        for name, key in (("rounds.jsonl", "number"), ("timings.jsonl", "round")):
            lines = [line for line in _lines(self.path / name) if line.get(key) in range(1, number + 1)]
            wire.write(self.path / name, "".join(json.dumps(line) + "\n" for line in lines).encode())
        for folder in self.checkpoints():
            if folder.name > f"round-{number:05d}":
                shutil.rmtree(folder)

    def finish(self, **told: Any) -> None:
        """Marks the cell as complete, its rounds as they are, with what a reader must be told besides."""
        done = {"identity": self.identity, **told, "files": {}}
        for name in ("rounds.jsonl", OUTCOMES):
            if (self.path / name).exists():
                done["files"][name] = digest(self.path / name)._asdict()
        write_json(self.path / "done.json", done)
        self.prune(self.kept)

    def finished(self) -> dict[str, Any] | None:
        """What `finish` wrote, if it was for this very cell and the rounds are still those."""
        try:
            done: dict[str, Any] = json.loads((self.path / "done.json").read_text())
            files = done["files"] if "files" in done else {"rounds.jsonl": done["rounds"]}  # before version 4
            intact = all(Digest(**known) == digest(self.path / name) for name, known in files.items())
            same = done["identity"] == self.identity and intact
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return done if same else None

    def set_aside(self) -> str | None:
        """Moves what another plan left here out of the way; nothing that was computed is thrown away."""
        if not self.checkpoints() and not (self.path / "done.json").exists():
            return None
        place = free_place(self.path.parent.parent / "replaced", self.path.name)
        self.path.rename(place)
        return f"{self.path.name} starts anew; what was there is kept in {place}"


def packed(outcomes: Outcomes) -> Tree:
    """Eight rows to a byte; where all clients' outcomes are the same they are stored once."""
    tree: Tree = {"rows": {}, "bits": {}}
    for view, by_client in outcomes.items():
        rows = list(by_client.values())
        alike = len(rows) > 1 and all(np.array_equal(rows[0], other) for other in rows)
        bits = {"all": rows[0]} if alike else {str(client): own for client, own in by_client.items()}
        tree["bits"][view] = {client: torch.from_numpy(np.packbits(own)) for client, own in bits.items()}
        tree["rows"][view] = {str(client): float(len(own)) for client, own in by_client.items()}
    return tree


def unpacked(tree: Tree) -> Outcomes:
    return {
        view: {
            int(client): np.unpackbits(bits.get("all", bits.get(client)).numpy(), count=int(count)).astype(
                bool
            )
            for client, count in tree["rows"][view].items()
        }
        for view, bits in tree["bits"].items()
    }


def free_place(attic: Path, name: str) -> Path:
    """Where something can be put aside without touching what was put there before."""
    attic.mkdir(parents=True, exist_ok=True)
    return next(place for number in count() if not (place := attic / f"{name}-{number}").exists())


def write_json(path: Path, value: Any) -> None:
    wire.write(path, (json.dumps(value, indent=1) + "\n").encode())


class Digest(NamedTuple):
    """What a file holds, in brief."""

    bytes: int
    sha256: str

    def __str__(self) -> str:
        return f"{self.bytes} bytes with checksum {self.sha256[:8]}"


def digest(path: Path) -> Digest:
    data = path.read_bytes()
    return Digest(len(data), hashlib.sha256(data).hexdigest())


def _append(path: Path, line: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")
        file.flush()
        os.fsync(file.fileno())


def _lines(path: Path) -> list[dict[str, Any]]:
    """The lines up to the first broken one: a process that was killed may have left half of it."""
    found: list[dict[str, Any]] = []
    for line in path.read_text(errors="replace").split("\n")[:-1] if path.exists() else []:
        try:
            found.append(dict(json.loads(line)))
        except (ValueError, TypeError):
            break
    return found


def _nulled(scores: dict[int, float]) -> dict[int, float | None]:
    """JSON has no word for what is not finite."""
    return {client: value if math.isfinite(value) else None for client, value in scores.items()}


def _round(line: dict[str, Any], seconds: float) -> Round:
    scores = {
        measure: {int(client): math.nan if value is None else value for client, value in own.items()}
        for measure, own in line["scores"].items()
    }
    failures = {int(k): why for k, why in line["failures"].items()}
    return Round(**{**line, "scores": scores, "failures": failures, "seconds": seconds})
