"""Methods that fail on purpose; importable, so that worker processes can load them."""

from __future__ import annotations

import math
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from fedakd.method import Client
from fedakd.methods.fedakd import FedAKD
from fedakd.trees import Params, Tree


@dataclass(frozen=True)
class Dying(FedAKD):
    """Its worker process is killed at one client of one round, as often as `times`, counted in files."""

    marks: str = ""
    client: int = 1
    round: int = 2
    times: int = 1
    stage: str = "client_update"

    def client_update(self, client: Client, state: Tree) -> tuple[Tree, Tree]:
        if self.stage == "client_update" and client.stream[1] == self.round and client.id == self.client:
            self.die()
        return super().client_update(client, state)

    def models(self, state: Tree) -> dict[str, Params]:
        if self.stage == "models" and state["rounds"] == self.round:
            self.die()
        return super().models(state)

    def die(self) -> None:
        done = len(list(Path(self.marks).iterdir()))
        if done < self.times:
            (Path(self.marks) / str(done)).touch()
            print("these are my last words", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Buggy(FedAKD):
    """Its code raises at client 1 in round 2."""

    def client_update(self, client: Client, state: Tree) -> tuple[Tree, Tree]:
        if client.stream[1] == 2 and client.id == 1:
            raise ValueError("shapes do not fit")
        return super().client_update(client, state)


@dataclass(frozen=True)
class Exploding(FedAKD):
    """Its loss is not finite from round 3 on."""

    def client_update(self, client: Client, state: Tree) -> tuple[Tree, Tree]:
        if client.stream[1] >= 3:
            client.fit(
                state["model"], client.data, loss=lambda module, batch: module(batch.x).sum() * math.inf
            )
        return super().client_update(client, state)
