"""All clients in this process, one after another: the engine for debugging and small things."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fedakd import wire
from fedakd.engine.base import Judged, Progress, Seen, Spec, Trained, build, read_kept
from fedakd.threads import one_thread
from fedakd.trees import Params, Tree


class Serial:
    def __init__(self, spec: Spec, progress: Progress | None = None) -> None:
        self.sites = build(spec)
        self.progress = progress
        self.notices: list[str] = []

    def start(self, params: Params) -> None:
        with one_thread():
            for site in self.sites.values():
                site.start(params)

    def train(self, round: int, messages: Mapping[int, Tree]) -> Trained:
        updates, reports = {}, {}
        with one_thread():
            for client in sorted(messages):
                update, reports[client] = self.sites[client].train(round, messages[client])
                if update is not None:
                    updates[client] = update
                self._done("train", client)
        return Trained(updates, reports)

    def evaluate(self, round: int, messages: Mapping[int, Tree]) -> dict[int, Judged]:
        judged, seen = {}, Seen()
        with one_thread():
            for client in sorted(messages):
                judged[client] = self.sites[client].evaluate(round, messages[client], seen)
                self._done("evaluate", client)
        return judged

    def save(self, folder: Path) -> None:
        wire.save(folder / "clients-0.safetensors", {str(k): site.kept for k, site in self.sites.items()})

    def load(self, folder: Path) -> None:
        for client, kept in read_kept(folder).items():
            self.sites[client].kept = kept

    def close(self) -> None:
        self.sites.clear()

    def _done(self, stage: str, client: int) -> None:
        if self.progress:
            self.progress(stage, client)
