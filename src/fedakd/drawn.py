"""The rows that a plan and a seed stand for: drawn, stored, and read again."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import tensor

from fedakd import wire
from fedakd.data.images import ImageDataset
from fedakd.errors import PlanError
from fedakd.federation import Federation, federate
from fedakd.plan import Plan, fingerprint
from fedakd.released import federate_released
from fedakd.trees import Tree

ROWS = {
    "dataset",
    "partition",
    "clients",
    "fraction",
    "scale",
    "preset",
}  # what of a plan determines the rows
PARTS = ("train", "test", "weights")
SEAL = hashlib.sha256().digest_size


def asked(plan: Plan, seed: int, leak: bool) -> str:
    """A short name for the request, equal for plans that draw the same rows and judge on the same of them."""
    said: dict[str, object] = {"seed": seed, "leak": leak, "results": plan.version}
    if plan.evaluation != "auto":  # the partition's own; an audit tells which it was
        said["evaluation"] = plan.evaluation
    return fingerprint({**plan.model_dump(include=ROWS), **said})


def federation_of(plan: Plan, dataset: ImageDataset, seed: int, leak: bool) -> Federation:
    if plan.preset == "released":
        return released(plan, dataset, seed, leak)
    federation = federate(
        dataset, plan.partition, plan.clients, fraction=plan.fraction, scale=plan.scale, seed=seed
    )
    return federation if plan.evaluation == "auto" else replace(federation, evaluation=plan.evaluation)


RELEASED = {"pow": ("power", False), "bcs": ("equal", True), "ics": ("power", True)}  # sizes, shifted


def check_released(plan: Plan) -> None:
    """The published code knows three partitions, no strength of shift, and no common test set."""
    if plan.preset != "released":
        return
    if plan.evaluation == "global":
        raise PlanError("preset released judges every client on its own test rows, got evaluation global")
    name = plan.partition.split("(")[0]
    if name not in RELEASED:
        raise PlanError(f"preset released has only {', '.join(RELEASED)}; no code was published for {name}")


def released(plan: Plan, dataset: ImageDataset, seed: int, leak: bool) -> Federation:
    check_released(plan)
    sizes, shifted = RELEASED[plan.partition.split("(")[0]]
    shares = {"fraction": plan.fraction, "scale": plan.scale}
    options = {"seed": seed, "leak": leak, "shifted": shifted, **shares}
    return federate_released(dataset, sizes, plan.clients, **options)  # type: ignore[arg-type]


def with_stored_rows(federation: Federation, path: Path) -> Federation:
    """The rows stored with the run, or these, stored now: another processor may round and draw otherwise."""
    if not path.exists():
        data = wire.dumps(_tree(federation))
        wire.write(path, data + hashlib.sha256(data).digest())
    stored_bytes = path.read_bytes()
    data, seal = stored_bytes[:-SEAL], stored_bytes[-SEAL:]
    if hashlib.sha256(data).digest() != seal:
        raise PlanError(f"{path} is damaged; without it the rows are drawn anew: move it away to do that")
    stored = wire.loads(data)
    common = {name: stored[name].numpy() for name in ("validation", "global_test")}
    train, test, weights = (_parts(stored.get(part, {}), federation.clients) for part in PARTS)
    test = test or (common["global_test"],) * federation.clients
    return replace(federation, train=train, test=test, weights=weights or None, **common)


def _tree(federation: Federation) -> Tree:
    """All rows by part, and weights; a test part that is the whole test pool for everybody is stored once."""
    whole = all(own is federation.global_test for own in federation.test)
    own_parts = (federation.train, () if whole else federation.test, federation.weights or ())
    tree: Tree = {
        name: {str(k): tensor(part) for k, part in enumerate(parts)}
        for name, parts in zip(PARTS, own_parts, strict=True)
        if parts
    }
    common = {"validation": federation.validation, "global_test": federation.global_test}
    return tree | {name: tensor(own) for name, own in common.items()}


def _parts(stored: Tree, clients: int) -> tuple[NDArray[Any], ...]:
    return tuple(stored[str(k)].numpy() for k in range(clients)) if stored else ()


def contents(federation: Federation) -> str:
    """A checksum of the very rows every client trains on and is judged on, and of their weights."""
    total = hashlib.sha256()
    weights = [federation.test_weights(client) for client in range(federation.clients)]
    for rows in (
        *federation.train,
        *map(federation.test_rows, range(federation.clients)),
        federation.validation,
    ):
        total.update(rows.tobytes())
    for own in weights:
        if own is not None:
            total.update(own.tobytes())
    total.update(np.ascontiguousarray(federation.dataset.x).data)
    total.update(federation.dataset.y.tobytes())
    return total.hexdigest()[:16]
