"""One flat form of a tree, for bytes, files and other people's records."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from fedakd.errors import FedakdError
from fedakd.trees import Tree, leaves

NUMBER = "="  # suffix of a leaf that is a Python float
EMPTY = "/"  # suffix of a subtree without leaves


class WireError(FedakdError):
    """Bytes that are not a tree."""


def flatten(tree: Tree) -> tuple[dict[str, Tensor], dict[str, float]]:
    """Tensors and numbers by path; `unflatten` is the inverse.

    >>> flatten({"n": 3.0, "model": {"w": torch.zeros(2)}})
    ({'model/w': tensor([0., 0.])}, {'n': 3.0})
    """
    arrays: dict[str, Tensor] = {}
    numbers: dict[str, float] = {}
    for path, leaf in leaves(_checked(tree)):
        if isinstance(leaf, Tensor):
            arrays[path] = leaf.detach()
        elif isinstance(leaf, dict):
            numbers[path + EMPTY] = 0.0
        elif isinstance(leaf, float | int):
            numbers[path] = float(leaf)
        else:
            raise WireError(f"{path}: expected a tensor, a number or a tree, got {type(leaf).__name__}")
    return arrays, numbers


def _checked(tree: Tree) -> Tree:
    """Names must be such that a path can be taken apart again."""
    for name, value in tree.items():
        if not isinstance(name, str) or not name or "/" in name or name.endswith(NUMBER):
            raise WireError(f"a name must be text without '/' and without '=' at its end, got {name!r}")
        if isinstance(value, dict):
            _checked(value)
    return tree


def unflatten(arrays: dict[str, Tensor], numbers: dict[str, float]) -> Tree:
    tree: Tree = {}
    flat: dict[str, Any] = {**arrays, **numbers}
    for path, leaf in flat.items():
        empty = path.endswith(EMPTY)
        *parents, name = path.removesuffix(EMPTY).split("/")
        place = tree
        for parent in parents:
            place = place.setdefault(parent, {})
            if not isinstance(place, dict):
                raise WireError(f"{path}: {parent} is a leaf and cannot have parts")
        if name in place:
            raise WireError(f"{path} is there twice")
        place[name] = {} if empty else leaf
    return tree


def dumps(tree: Tree) -> bytes:
    arrays, numbers = flatten(tree)
    scalars = {name + NUMBER: torch.tensor(value, dtype=torch.float64) for name, value in numbers.items()}
    owned: set[int] = set()
    return bytes(save_tensors({name: _storable(part, owned) for name, part in (arrays | scalars).items()}))


def loads(data: bytes) -> Tree:
    """The tree, its names sorted."""
    try:
        found = load_tensors(data)
        flat = {name: found[name] for name in sorted(found)}
        scalars = [name for name in flat if name.endswith(NUMBER)]
        numbers = {name.removesuffix(NUMBER): flat.pop(name).item() for name in scalars}
    except (SafetensorError, ValueError, RuntimeError) as error:
        raise WireError(f"{len(data)} bytes are not a tree: {error}") from error
    return unflatten(flat, numbers)


def save(path: Path, tree: Tree, durable: bool = True) -> None:
    write(path, dumps(tree), durable)


def load(path: Path) -> Tree:
    try:
        return loads(path.read_bytes())
    except WireError as error:
        raise WireError(f"{path}: {error}") from error


def write(path: Path, data: bytes, durable: bool = True) -> None:
    """The whole file or none of it; if durable, even if the power fails.

    Of several processes that write it at once the last one wins; each has a partial file of its own.
    """
    partial = path.with_name(f"{path.name}.{uuid4().hex[:8]}.tmp")
    try:
        with partial.open("wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    if durable:  # the rename itself is on disk once the folder is
        folder = os.open(path.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)


def _storable(part: Tensor, owned: set[int]) -> Tensor:
    """Contiguous and sharing memory with no other leaf, as safetensors wants it."""
    part = part.contiguous()
    if (part.numel() and part.data_ptr() in owned) or part.untyped_storage().nbytes() != part.nbytes:
        part = part.clone()
    owned.add(part.data_ptr())
    return part
